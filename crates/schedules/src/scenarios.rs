//! What threads do beside each other. Small: two to four threads, a few steps each, and the
//! smallest of everything, so that memtables are sealed, log and value files change and flushes
//! are many.
//!
//! Each is a function of the schedule's seed, which also chooses the structure, the sizes and who
//! does what. All end with [`World::end`]: judged, checked, closed and opened again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lithedb::base::sync::{thread, time};
use lithedb::{Background, Conversion, Durability, Error, FollowUpTo, KeyspaceOptions};

use crate::history::Place;
use crate::random::Random;
use crate::trail::Trail;
use crate::world::{PATH, Part, Setup, World, together};

/// A scenario.
pub struct Scenario {
    pub name: &'static str,
    /// Files in which waits may be ended by the clock while somebody waits for them, beside
    /// [`PATIENT`].
    pub patient: &'static [&'static str],
    pub run: fn(u64),
}

const fn scenario(name: &'static str, run: fn(u64)) -> Scenario {
    Scenario { name, patient: &[], run }
}

/// Files in which waits are for the time to pass, and end for nothing else but closing.
pub const PATIENT: &[&str] = &["src/db/health/watcher.rs"];

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    scenario("commits", commits),
    // Memory that a reader was the last to hold comes back without a signal.
    Scenario { name: "seals", patient: &["src/db/core.rs"], run: seals },
    scenario("stalls", stalls),
    scenario("snapshots", snapshots),
    scenario("crashes", crashes),
    scenario("transactions", transactions),
    scenario("compaction", compaction),
    scenario("cleaning", cleaning),
    scenario("checkpoints", checkpoints),
    scenario("conversion", conversion),
    scenario("rotation", rotation),
    scenario("closing", closing),
    scenario("drops", drops),
    scenario("ingests", ingests),
    scenario("following", following),
    scenario("trails", trails),
    // As with `seals`: a check is a reader.
    Scenario { name: "checks", patient: &["src/db/core.rs"], run: checks },
];

const KEYS: u64 = 4;

fn place(random: &mut Random) -> Place {
    (0, random.below(KEYS) as u8)
}

fn durability(random: &mut Random) -> Durability {
    if random.one_in(2) { Durability::Sync } else { Durability::Buffered }
}

/// A thread that does this with the world, with a seed of its own.
fn part(
    world: &World,
    random: &mut Random,
    run: impl FnOnce(&World, &mut Random) + Send + 'static,
) -> Part {
    let (world, mut random) = (world.clone(), Random::new(random.next()));
    Box::new(move || run(&world, &mut random))
}

fn writes(count: u64) -> impl FnOnce(&World, &mut Random) + Send + 'static {
    move |world, random| {
        for _ in 0..count {
            let (put, delete) = (place(random), place(random));
            let deletes = if random.one_in(4) && put != delete { vec![delete] } else { vec![] };
            world.write(&[put], &deletes, durability(random)).unwrap();
        }
    }
}

fn reads(count: u64) -> impl FnOnce(&World, &mut Random) + Send + 'static {
    move |world, random| {
        for _ in 0..count {
            match random.below(3) {
                0 => world.look_around().unwrap(),
                _ => world.look(place(random)).unwrap(),
            }
        }
    }
}

fn flushes(count: u64) -> impl FnOnce(&World, &mut Random) + Send + 'static {
    move |world, _| (0..count).for_each(|_| world.db.flush().unwrap())
}

fn tiny(seed: u64) -> (Setup, Random) {
    let mut random = Random::new(seed);
    (Setup::tiny(&mut random), random)
}

fn commits(seed: u64) {
    let (mut setup, mut random) = tiny(seed);
    if random.one_in(2) {
        setup.keyspaces.push(KeyspaceOptions::flex().interval_size(512).segment_size(4096));
    }
    let world = World::open(setup);
    let count = 2 + random.below(2);
    let parts = (0..count).map(|_| {
        part(&world, &mut random, |world, random| {
            for _ in 0..2 {
                let mut places = vec![place(random)];
                if world.keyspaces.len() > 1 {
                    places.push((1, random.below(KEYS) as u8));
                }
                world.put(&places, durability(random)).unwrap();
            }
        })
    });
    let mut parts: Vec<Part> = parts.collect();
    parts.push(part(&world, &mut random, reads(2)));
    together(parts);
    world.end();
}

/// Values so large that every few commits fill a memtable, and writers wait for flushes.
fn seals(seed: u64) {
    let (mut setup, mut random) = tiny(seed);
    setup.value_sizes = vec![1400, 3000];
    if random.one_in(2) {
        setup.memory_budget = 64 << 10;
    }
    let world = World::open(setup);
    let parts = vec![
        part(&world, &mut random, writes(6)),
        part(&world, &mut random, writes(4)),
        part(&world, &mut random, reads(2)),
    ];
    together(parts);
    world.end();
}

/// The same without readers, and with so little memory that what each writes first fills it: each
/// flush wakes who waits for it. (Who is held to a rate sleeps, and meets no full memory.)
fn stalls(seed: u64) {
    let (mut setup, mut random) = tiny(seed);
    setup.value_sizes = vec![11_000, 13_000];
    for options in &mut setup.keyspaces {
        *options = options.clone().value_separation(None);
    }
    setup.memory_budget = 64 << 10;
    setup.background = Background::Threads;
    let world = World::open(setup);
    let parts = (0..3).map(|_| part(&world, &mut random, writes(3))).collect();
    together(parts);
    world.end();
}

/// Snapshots that are gone through while what they have is flushed.
fn snapshots(seed: u64) {
    let (mut setup, mut random) = tiny(seed);
    setup.value_sizes = vec![20, 1400];
    let world = World::open(setup);
    let parts = vec![
        part(&world, &mut random, writes(3)),
        part(&world, &mut random, flushes(1)),
        part(&world, &mut random, |world, random| {
            let early = world.snapshot();
            world.look(place(random)).unwrap();
            let late = world.snapshot();
            world.view(&late).unwrap();
            world.view(&early).unwrap();
        }),
    ];
    together(parts);
    world.end();
}

/// What a crash leaves at any moment.
fn crashes(seed: u64) {
    let (setup, mut random) = tiny(seed);
    let setup = if random.one_in(2) { setup.with_large_values() } else { setup };
    let world = World::open(setup);
    let crashed = Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = Arc::clone(&crashed);
    let parts = vec![
        part(&world, &mut random, writes(3)),
        part(&world, &mut random, |world, random| {
            world.put(&[place(random)], Durability::Sync).unwrap();
            world.db.flush().unwrap();
            world.put(&[place(random)], Durability::Sync).unwrap();
        }),
        part(&world, &mut random, move |world, random| {
            for _ in 0..3 {
                (0..random.below(40)).for_each(|_| thread::sleep(std::time::Duration::ZERO));
                world.look(place(random)).unwrap();
                let found = world.crash(random);
                kept.lock().unwrap().push(found);
            }
        }),
    ];
    together(parts);
    let crashed = std::mem::take(&mut *crashed.lock().unwrap());
    crashed.iter().for_each(|crashed| world.expect_survived(crashed));
    world.end();
}

/// Read, and write what was read: none may be lost.
fn transactions(seed: u64) {
    let (setup, mut random) = tiny(seed);
    let world = World::open(setup);
    let transacts = |world: &World, random: &mut Random| {
        for _ in 0..2 {
            let (read, also) = ((0, random.below(2) as u8), (0, 2 + random.below(2) as u8));
            world.transact(read, also).unwrap();
        }
    };
    let parts = vec![
        part(&world, &mut random, transacts),
        part(&world, &mut random, transacts),
        part(&world, &mut random, |world, random| {
            writes(1)(world, random);
            world.db.flush().unwrap();
        }),
    ];
    together(parts);
    world.end();
}

fn filled(setup: Setup, random: &mut Random, rounds: u64) -> World {
    let world = World::open(setup);
    for _ in 0..rounds {
        let places: Vec<Place> = (0..KEYS).map(|key| (0, key as u8)).collect();
        world.put(&places, Durability::Buffered).unwrap();
        if !random.one_in(4) {
            world.db.flush().unwrap();
        }
    }
    world
}

fn compaction(seed: u64) {
    let (setup, mut random) = tiny(seed);
    let world = filled(setup, &mut random, 3);
    let parts = vec![
        part(&world, &mut random, |world, _| world.db.compact().unwrap()),
        part(&world, &mut random, |world, random| {
            let early = world.snapshot();
            reads(1)(world, random);
            world.view(&early).unwrap();
        }),
        part(&world, &mut random, |world, random| {
            writes(2)(world, random);
            flushes(1)(world, random);
        }),
    ];
    together(parts);
    world.end();
}

fn cleaning(seed: u64) {
    let (setup, mut random) = tiny(seed);
    let mut setup = setup.with_large_values();
    setup.value_sizes = vec![1500, 900, 20];
    let world = filled(setup, &mut random, 3);
    let parts = vec![
        part(&world, &mut random, |world, _| {
            let _report = world.db.vacuum().unwrap();
        }),
        part(&world, &mut random, |world, random| {
            let early = world.snapshot();
            reads(1)(world, random);
            world.view(&early).unwrap();
        }),
        part(&world, &mut random, |world, random| {
            writes(2)(world, random);
            flushes(1)(world, random);
        }),
    ];
    together(parts);
    world.end();
}

/// Checkpoints beside commits, flushes, and log files that go and are used again.
fn checkpoints(seed: u64) {
    let (setup, mut random) = tiny(seed);
    let mut setup = setup.with_large_values();
    setup.value_sizes = vec![250, 2500];
    let world = filled(setup, &mut random, 1);
    let least = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let known = Arc::clone(&least);
    let parts = vec![
        part(&world, &mut random, writes(4)),
        part(&world, &mut random, flushes(2)),
        part(&world, &mut random, move |world, random| {
            reads(1)(world, random);
            known.store(world.history.acknowledged(), Ordering::Relaxed);
            let _report = world.db.checkpoint("/checkpoint").unwrap();
        }),
    ];
    together(parts);
    world.expect_prefix(&world.storage, "/checkpoint", least.load(Ordering::Relaxed));
    if random.one_in(2) {
        let crashed = world.storage.crash(lithedb::storage::CrashMode::DropAll, random.next());
        world.expect_prefix(&crashed, "/checkpoint", least.load(Ordering::Relaxed));
    }
    world.end();
}

fn conversion(seed: u64) {
    let (setup, mut random) = tiny(seed);
    let world = filled(setup, &mut random, 2);
    let parts = vec![
        part(&world, &mut random, |world, random| {
            let options = match random.below(3) {
                0 => KeyspaceOptions::lsm().table_size(8 << 10).block_size(512),
                1 => KeyspaceOptions::flex().interval_size(512).segment_size(4096),
                _ => KeyspaceOptions::history().interval_size(1024).segment_size(4096),
            };
            let conversion = Conversion::to(options).losing_versions();
            let _report = world.keyspaces[0].convert(conversion).unwrap();
        }),
        part(&world, &mut random, |world, random| {
            writes(3)(world, random);
            flushes(1)(world, random);
        }),
        part(&world, &mut random, |world, random| {
            let early = world.snapshot();
            reads(2)(world, random);
            world.view(&early).unwrap();
        }),
    ];
    together(parts);
    world.end();
}

/// Another data key while the older one is in use.
fn rotation(seed: u64) {
    let (setup, mut random) = tiny(seed);
    let mut setup = setup.with_large_values();
    setup.encrypted = true;
    let world = filled(setup, &mut random, 1);
    let parts = vec![
        part(&world, &mut random, |world, _| drop(world.db.rotate_data_key().unwrap())),
        part(&world, &mut random, |world, random| {
            writes(3)(world, random);
            reads(1)(world, random);
        }),
    ];
    together(parts);
    world.end();
}

/// Closing beside everything: each call ends, with what it is to do or with `Closed`; what was
/// acknowledged is there, and of the rest each commit is there or not.
fn closing(seed: u64) {
    let (mut setup, mut random) = tiny(seed);
    setup.value_sizes = vec![20, 1400];
    let world = World::open(setup);
    let tried = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut parts: Vec<Part> = Vec::new();
    for thread in 0..2u8 {
        let tried = Arc::clone(&tried);
        parts.push(part(&world, &mut random, move |world, random| {
            for number in 0..3 {
                let key = 10 * (thread + 1) + number;
                let value = world.history.next_value();
                let (bytes, durability) = (world.bytes_of(value), durability(random));
                let put = world.keyspaces[0].put_with([key], bytes, durability);
                let is_closed = matches!(put, Err(Error::Closed));
                assert!(put.is_ok() || is_closed, "{put:?}");
                tried.lock().unwrap().push((key, value, put.is_ok()));
                let (looked, flushed) = (world.look_around(), Ok(()));
                let flushed = if random.one_in(3) { world.db.flush() } else { flushed };
                for done in [looked, flushed] {
                    assert!(matches!(done, Ok(()) | Err(Error::Closed)), "{done:?}");
                }
            }
        }));
    }
    parts.push(part(&world, &mut random, |world, random| {
        (0..random.below(60)).for_each(|_| thread::sleep(std::time::Duration::ZERO));
        match random.below(4) {
            0 => world.db.compact().or_else(unless_closed).unwrap(),
            1 => world.db.checkpoint("/other").map(drop).or_else(unless_closed).unwrap(),
            _ => {}
        }
        drop(world.db.close().unwrap());
    }));
    together(parts);
    let tried = std::mem::take(&mut *tried.lock().unwrap());
    world.expect_tried(&tried);
}

fn unless_closed(error: Error) -> Result<(), Error> {
    if matches!(error, Error::Closed) { Ok(()) } else { Err(error) }
}

/// Whoever is the last to drop something of the database closes it, in whatever order.
fn drops(seed: u64) {
    let (mut setup, mut random) = tiny(seed);
    setup.value_sizes = vec![20, 1400];
    let world = World::open(setup);
    let all = [(0, 0), (0, 1), (0, 2)];
    world.put(&all, Durability::Buffered).unwrap();
    if random.one_in(2) {
        world.db.flush().unwrap();
    }
    let (storage, setup) = (world.storage.clone(), Arc::clone(&world.setup));
    let history = Arc::clone(&world.history);
    let parts = vec![
        part(&world, &mut random, |world, _| {
            let (snapshot, span) = world.snapshot();
            let mut iterator = snapshot.iter(&world.keyspaces[0]);
            let first = iterator.next().unwrap().unwrap();
            assert_eq!(first.key[..], [0]);
            world.view(&(snapshot, span)).unwrap();
        }),
        part(&world, &mut random, |world, _| {
            let mut transaction = world.db.begin_update();
            let _read = transaction.get(&world.keyspaces[0], [1]).unwrap();
            transaction.put(&world.keyspaces[0], [9], [1]).unwrap();
        }),
        part(&world, &mut random, |world, random| {
            world.put(&[(0, 1)], durability(random)).unwrap();
            if random.one_in(2) {
                world.db.flush().unwrap();
            }
        }),
    ];
    drop(world); // The threads have the rest: each drops what it has when it is over.
    together(parts);
    history.judge();
    World::expect_left(&setup, &storage, &history, PATH);
}

/// Sorted entries that come in at once, while commits are held.
fn ingests(seed: u64) {
    let (setup, mut random) = tiny(seed);
    let world = filled(setup, &mut random, 1);
    let is_in = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_in);
    let parts = vec![
        part(&world, &mut random, move |world, _| {
            world.ingest(&[(0, 1), (0, 2), (0, 3)]).unwrap();
            told.store(true, Ordering::Relaxed);
        }),
        part(&world, &mut random, writes(3)),
        part(&world, &mut random, |world, random| {
            reads(2)(world, random);
            world.transact((0, 1), (0, 3)).unwrap();
        }),
    ];
    together(parts);
    assert!(is_in.load(Ordering::Relaxed));
    time::foreground(|| world.db.flush()).unwrap();
    world.end();
}

/// Somebody who reads beside the writer, in another process as far as either can tell.
fn following(seed: u64) {
    let (mut setup, mut random) = tiny(seed);
    setup.value_sizes = vec![20, 1400];
    let setup = if random.one_in(2) { setup.with_large_values() } else { setup };
    let world = filled(setup, &mut random, 1);
    let parts = vec![
        part(&world, &mut random, writes(4)),
        part(&world, &mut random, flushes(2)),
        part(&world, &mut random, |world, random| {
            let durable = random.one_in(2);
            let up_to = if durable { FollowUpTo::Durable } else { FollowUpTo::Written };
            world.follow(up_to, 3).unwrap();
        }),
    ];
    together(parts);
    world.end();
}

/// A trail that begins and is added to beside an ingest: what is restored at its end is what was
/// there then, or the trail was ended by the ingest.
fn trails(seed: u64) {
    let (setup, mut random) = tiny(seed);
    let world = filled(setup, &mut random, 1);
    let trail = Trail::open(&world);
    if random.one_in(2) {
        trail.begin(&world).unwrap();
    }
    let beginner = trail.clone();
    let parts = vec![
        part(&world, &mut random, |world, random| {
            writes(1)(world, random);
            world.ingest(&[(0, 1), (0, 2), (0, 3)]).unwrap();
        }),
        part(&world, &mut random, writes(2)),
        part(&world, &mut random, move |world, random| {
            (0..random.below(60)).for_each(|_| thread::sleep(std::time::Duration::ZERO));
            beginner.begin(world).or_else(unless_one_follows).unwrap();
            beginner.extend(world).unwrap();
        }),
    ];
    together(parts);
    time::foreground(|| trail.extend(&world)).unwrap();
    trail.expect_restored(&world);
    world.end();
}

fn unless_one_follows(error: Error) -> Result<(), Error> {
    if matches!(error, Error::InvalidArgument { .. }) { Ok(()) } else { Err(error) }
}

/// Checks beside writers and flushes, which give the log back: nothing is wrong at any moment.
fn checks(seed: u64) {
    let (mut setup, mut random) = tiny(seed);
    setup.value_sizes = vec![20, 9000];
    setup.kept_log_size = Some(0); // What is given back is used again at once.
    for options in &mut setup.keyspaces {
        *options = options.clone().value_separation(None);
    }
    let world = filled(setup, &mut random, 1);
    let parts = vec![
        part(&world, &mut random, writes(6)),
        part(&world, &mut random, flushes(3)),
        part(&world, &mut random, |world, _| (0..3).for_each(|_| world.expect_sound())),
    ];
    together(parts);
    world.end();
}
