#!/usr/bin/env bash
# Create .venv with some extras of Skipstone, in the versions of requirements-dev.lock, and check for Java 17+
# and, for the tests of the server's page, Chromium.
# Usage: setup.sh EXTRAS STAMP; the stamp is the file of .venv that tells make what is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
extras=${1:-all,dev,bench} stamp=${2:-ready}

"$python" - <<'PY' || { echo "Skipstone needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
import sys
sys.exit(sys.version_info < (3, 11))
PY

[ -x .venv/bin/python ] || "$python" -m venv .venv
echo "Installing Skipstone [$extras] into .venv (a few minutes the first time) ..."
install() { .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"; }
install --upgrade pip
install --editable ".[$extras]" --constraint requirements-dev.lock || {
  echo "The locked versions cannot be installed here; installing the newest ones that fit ..." >&2
  install --editable ".[$extras]"
}

java_major() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java
  "$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}
if [ "$(java_major || true)" -ge 17 ] 2>/dev/null; then
  :
elif command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  echo "Installing Java 17 from the system's packages ..."
  apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless >/dev/null
else
  echo "Spark needs Java 17 or newer, which was not found. Install it with one of" >&2
  echo "    sudo apt-get install openjdk-17-jre-headless     (Debian, Ubuntu)" >&2
  echo "    sudo dnf install java-17-openjdk-headless        (Fedora, RHEL)" >&2
  echo "    brew install openjdk@17                          (macOS)" >&2
  echo "or point JAVA_HOME at one, and run make again. Everything but Spark works without it." >&2
fi

# Only the tests of the server's page need a browser.
if [ "$stamp" != ready ]; then
  :
elif command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; then
  :
elif command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  echo "Installing Chromium from the system's packages ..."
  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null
else
  echo "The tests of the server's page need Chromium, which was not found. Install it with one of" >&2
  echo "    sudo apt-get install chromium                    (Debian)" >&2
  echo "    sudo apt-get install chromium-browser            (Ubuntu)" >&2
  echo "    sudo dnf install chromium                        (Fedora)" >&2
  echo "    brew install --cask chromium                     (macOS)" >&2
  echo "and run make again. All other tests work without it." >&2
fi
touch ".venv/.$stamp"
if [ "$stamp" = ready ]; then touch .venv/.demo; fi
