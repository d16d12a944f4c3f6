#!/bin/bash
# Makes .venv anew or brings it up to date: pinned uv first, then by uv every hashed requirement,
# then this checkout, editable. The first argument names the Python to use.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=.venv
# The environment that is made anew must not make itself.
PATH=${PATH#"$PWD/$venv/bin:"}
python=${1:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "$python is missing or older than 3.11; name another: make PYTHON=…" >&2
    exit 2
fi
if [[ ! -x $venv/bin/python ]] || ! "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "Making $venv with $("$python" --version)"
    if ! "$python" -m venv --clear "$venv"; then
        echo "$python cannot make environments; on Debian: apt-get install python3-venv" >&2
        exit 2
    fi
fi
if [[ $("$venv/bin/uv" --version 2>/dev/null) != "uv $(sed -n 's/^uv==\([^ ]*\).*/\1/p' requirements/uv.txt)"* ]]; then
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
fi
echo "Installing requirements/all.txt into $venv"
export VIRTUAL_ENV=$PWD/$venv
# With bytecode, as pip would: without it every start of a verb compiles numpy and pydantic anew where nobody may write it.
"$venv/bin/uv" pip sync --quiet --compile-bytecode --require-hashes requirements/all.txt requirements/uv.txt
"$venv/bin/uv" pip install --quiet --no-deps --no-build-isolation --editable .
"$venv/bin/python" -m compileall -q lockstep inventory pinsets placement manifests bringup stacks lab
