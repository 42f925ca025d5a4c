#!/usr/bin/env bash
# The console's tests in a browser. Needs node and Chromium, which it installs where it may; builds the
# server unless SERVER names it built, and runs it on databases of its own. With `--screenshots`
# docs/console/ is made anew.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../../.." && pwd)

install=()
command -v node > /dev/null || install+=(nodejs)
command -v chromium > /dev/null || [[ -n ${CHROMIUM:-} ]] || install+=(chromium fonts-dejavu-core)
if [[ ${1:-} == --screenshots ]] && ! command -v pngquant > /dev/null; then
    install+=(pngquant)
fi
if ((${#install[@]})); then
    apt-get update
    apt-get install --yes --no-install-recommends "${install[@]}"
fi

while IFS= read -r -d '' module; do
    node --input-type=module --check < "$module"
done < <(find "$root/crates/server/console" -name '*.js' -print0)

cd "$root"
if [[ -z ${SERVER:-} ]]; then
    cargo build --locked -p lithe-server --example serve
    SERVER=${CARGO_TARGET_DIR:-$root/target}/debug/examples/serve
fi
CHROMIUM=${CHROMIUM:-$(command -v chromium)}
export SERVER CHROMIUM
if [[ ${1:-} == --screenshots ]]; then
    export SCREENSHOTS=$root/docs/console
fi
node --test --test-timeout=900000 "$here/console.test.mjs"
if [[ -n ${SCREENSHOTS:-} ]] && command -v pngquant > /dev/null; then
    pngquant --force --skip-if-larger --ext .png --strip 128 -- "$SCREENSHOTS"/*.png || test $? -eq 98
fi
