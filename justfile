# Everyday commands. `just check` is all of CI; the slower ones stand beside it.

# All that must pass for a change to land.
check:
    .ci/run

# The tests.
test:
    cargo test --workspace

# What the store does, on bundled data.
demo:
    cargo run --release -- demo

# Benchmarks: `just bench W3 W4 --keys 1000000`.
bench *ARGS:
    cargo run --release -- bench {{ARGS}}

# LitheDB and its rivals on the same workloads: writes docs/benchmarks.md. To try things out:
# `just bench-peers --quick --engines lithedb,redb --out /tmp/report`.
bench-peers *ARGS:
    cargo run --release --manifest-path bench-peers/Cargo.toml -- --out docs {{ARGS}}

# The same engines on flipped bits, failing syncs and full disks: `just bench-peers-faults --parts flips`.
bench-peers-faults *ARGS:
    cargo run --release --manifest-path bench-peers/Cargo.toml -p faults -- {{ARGS}}

# What backups, encryption, recovery, checks and scrubbing cost: `just trust --parts backup --structure lsm`.
trust *ARGS:
    cargo bench -p lithe-bench --bench trust -- {{ARGS}}

# Instructions of the hot paths, beside the recorded baseline; `just instructions --record` records.
instructions *ARGS:
    cargo bench -p lithe-bench --bench instructions -- {{ARGS}}

# Crash states in the simulation, with the prefix oracle.
crash STATES='1000000' SEED='1':
    cargo run --release -p lithe-sim -- crash --states {{STATES}} --seed {{SEED}}

# Bit flips and truncations of every file.
damage SEED='1':
    cargo run --release -p lithe-sim -- flips --seed {{SEED}}
    cargo run --release -p lithe-sim -- truncations --seed {{SEED}}

# Errors injected at every operation.
errors SEED='1':
    cargo run --release -p lithe-sim -- errors --seed {{SEED}}

# Transactions of several threads against each other, every read judged.
isolation COUNT='1000000' SEED='1':
    cargo run --release -p lithe-sim -- isolation --transactions {{COUNT}} --seed {{SEED}}

# Flexible spaces: crashes, rot, failing calls, full disks, a vector to compare with.
space STATES='100000' SEED='1':
    cargo run --release -p lithe-sim -- space --states {{STATES}} --seed {{SEED}}

# FlexTree and FlexSpace against what else there is: `just bench-space tree --large`.
bench-space *ARGS:
    cargo bench -p lithe-bench --bench space -- {{ARGS}}

# What others have published, beside their figures: `just published bedrock --large`.
published *ARGS:
    cargo bench -p lithe-bench --bench published -- {{ARGS}}

# Many times the memory: `just scale --structure lsm --keys 50000000`.
scale *ARGS:
    cargo bench -p lithe-bench --bench scale -- {{ARGS}}

# Everything at once, with memory and answers watched: `just soak --memory 32MiB --seconds 3600`.
soak *ARGS:
    cargo bench -p lithe-bench --bench soak -- {{ARGS}}

# Trails of backups: many runs, restored at many moments each.
trails:
    cargo test --release -p lithedb --test it -- --ignored --nocapture --exact \
        backup::trail::model::restored_at_any_stamp_it_is_what_it_was_in_many_runs

# The server beside redis-server and BedrockDB's table, on a machine that does nothing else:
# `just served --parts redis --requests 1000000`, `just served --parts http --out /tmp/served.md`.
served *ARGS:
    cargo bench -p lithe-server --bench served -- {{ARGS}}

# Random operations against maps.
model SEED='1':
    cargo run --release -p lithe-sim -- model --seed {{SEED}}

# Each seed twice: both must do the same, call by call.
replay COUNT='10000' SEED='1':
    cargo run --release -p lithe-sim -- replay --runs {{COUNT}} --seed {{SEED}}

# Runs of all kinds by seed, for so many seconds: `just torture 3600 7`, `just torture 600 1 --only crash`.
torture SECONDS='600' SEED='1' *ARGS:
    cargo run --release -p lithe-sim -- campaign --seconds {{SECONDS}} --seed {{SEED}} --ledger torture-ledger.txt {{ARGS}}

# Processes that are killed, on a disk in memory: `just torture-kill 50000 7`.
torture-kill ROUNDS='10000' SEED='1' DIR='/dev/shm/lithe-torture' *ARGS:
    cargo run --release -- torture kill --dir {{DIR}} --rounds {{ROUNDS}} --seed {{SEED}} --workers 2 {{ARGS}}

# Whether the time that a wrong token takes tells anything of a right one.
constant-time *ARGS:
    cargo bench -p lithe-server --bench constant_time -- {{ARGS}}

# Servers that are killed under writers of both protocols: `just served-kills 1000 7`.
served-kills ROUNDS='1000' SEED='1':
    LITHE_ROUNDS={{ROUNDS}} LITHE_SEED={{SEED}} cargo test --release -p lithe-cli --test cli -- --ignored --exact --nocapture \
        serving::nothing_acknowledged_is_lost_in_many_rounds

# Processes that are killed while they write at full speed and follow that: `just feed-kills 1000`.
feed-kills ROUNDS='100':
    LITHE_ROUNDS={{ROUNDS}} cargo test --release --test it -- --ignored --exact --nocapture \
        feed::a_mirror_of_a_load_as_fast_as_it_goes_has_each_commit_once

# File systems whose power is cut, to be run as root: `just torture-power xfs 1000`.
torture-power FS='ext4' ROUNDS='1000' SEED='1' IMAGE='/dev/shm/lithe-torture.img' *ARGS:
    cargo build --release
    target/release/lithe torture power --image {{IMAGE}} --fs {{FS}} --rounds {{ROUNDS}} --seed {{SEED}} --workers 2 {{ARGS}}

# Bugs that are built into the engine, one at a time, and which runner finds each: a table.
seeded SEED='1' *ARGS:
    RUSTFLAGS="--cfg seeded_bugs" cargo run --release --target-dir target/seeded -p lithe-sim -- seeded --seed {{SEED}} {{ARGS}}

# Threads in so many orders, from a seed on: the engine under a scheduler (`crates/schedules`).
# `just schedules 1 77 --scenario crashes` shows one schedule again, `just schedules 20000 1 --mistakes`
# that mistakes which are built in are found.
schedules COUNT='1000000' SEED='1' *ARGS:
    RUSTFLAGS="--cfg shuttle" cargo run --profile schedules --target-dir target/shuttle -p lithe-schedules -- --count {{COUNT}} --seed {{SEED}} {{ARGS}}

# What is lock-free and small, in every order that the memory model allows.
kernels:
    RUSTFLAGS="--cfg loom" cargo test --release --target-dir target/loom -p lithe-schedules --test kernels

# The Redis protocol beside redis-server, and by redis-cli, redis-benchmark, redis-py, ioredis and go-redis,
# which have to be there: `LITHE_PYTHON` is a python3 with redis, ioredis is installed in crates/server/tests/clients.
redis-clients:
    cargo test -p lithe-server --test it -- --ignored --skip real_clients::serve redis::

# The memtable's unsafe code under miri (needs a nightly toolchain with miri).
miri:
    cargo +nightly miri test -p lithedb --lib memtable

# Golden databases of a new format; of the one that is not released yet: `GOLDEN=anew just golden`.
golden:
    cargo test -p lithedb --test it -- --ignored golden_databases_are_made --nocapture

# The web console in headless Chromium, against a server on a fresh database. `just console-tests --screenshots`
# makes docs/console/ anew.
console-tests *ARGS:
    crates/server/tests/browser/run.sh {{ARGS}}

# Rules for dependencies: licences, bans, sources (deny.toml).
supply:
    cargo run --quiet -p lithe-supply -- check

# The same and advisories; needs cargo-deny and the network.
deny:
    cargo deny --all-features check

# What library and program are built of, as CycloneDX 1.5.
sbom FILE='lithe.cdx.json':
    cargo run --quiet -p lithe-supply -- sbom > {{FILE}}

# The list of packages of others.
third-party:
    cargo run --quiet -p lithe-supply -- list > THIRD-PARTY.md

# Their licence texts, to be passed on with a program.
licences FILE='LICENCES.txt':
    cargo run --quiet -p lithe-supply -- texts > {{FILE}}

# A session of the shell, as docs/cli/shell-session.cast.
record-shell:
    cargo test -p lithe-cli --test cli -- --ignored a_session_is_recorded

# A decoder under a fuzzer (needs a nightly toolchain and cargo-fuzz).
fuzz TARGET SECONDS='60':
    cargo +nightly fuzz run {{TARGET}} -- -max_total_time={{SECONDS}}

# The guide as a book, in target/guide; needs mdbook. What leads out of it leads to the documents of
# this checkout.
guide:
    mdbook build docs/guide
    sed -i -E 's|href="\.\./\.\./\.\./([^":]*)\.html|href="../../\1.md|g; s|href="\.\./\.\./([^":]*)\.html|href="../../docs/\1.md|g' target/guide/*.html

# What ten thousand connections of clients that are not known take of the server's memory.
http-connections:
    cargo test -p lithe-server --test it -- --ignored --exact --nocapture \
        http::connections::ten_thousand_connections_of_nobody_take_little

# The HTTP calls under a property-based tester (needs schemathesis): `just http-properties -n 200`.
http-properties *ARGS:
    scripts/http-properties {{ARGS}}
