//! The group of commits with threads that come, wait and leave.

use super::*;
use crate::base::Clock;
use crate::base::SystemClock;

const SYNC_TIME: Duration = Duration::from_micros(80);

fn at_micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn caller(end: u64) -> Arc<Caller> {
    Caller::new(Lsn::from_u64(end))
}

fn turn(gathering: Gathering) -> SyncTurn {
    SyncTurn::new(Lsn::ZERO, GroupPolicy::new(gathering))
}

/// Ends a sync at `micros`, up to `end`; how many were served beside the leader.
fn pass_on(turn: &SyncTurn, end: u64, micros: u64) -> usize {
    turn.pass_on(Lsn::from_u64(end), SYNC_TIME, at_micros(micros)).len()
}

/// What the thread was called to do; it does not wait.
fn call_of(caller: &Caller) -> Call {
    caller.wait(Duration::ZERO)
}

/// A turn whose last group had two members, and ended at 100 us.
fn turn_after_two() -> SyncTurn {
    let turn = turn(Gathering::Adaptive);
    let (first, second) = (caller(8), caller(16));
    assert_eq!(turn.arrive(&first, at_micros(0)), Role::Lead);
    assert_eq!(turn.arrive(&second, at_micros(1)), Role::Wait(WAIT_MAX));
    assert_eq!(pass_on(&turn, 16, 100), 1);
    turn
}

#[test]
fn one_thread_alone_always_leads_at_once() {
    let turn = turn(Gathering::Adaptive);
    for commit in 1..100 {
        assert_eq!(turn.arrive(&caller(8 * commit), at_micros(90 * commit)), Role::Lead);
        assert_eq!(pass_on(&turn, 8 * commit, 90 * commit + 80), 0);
    }
}

#[test]
fn a_position_that_is_durable_already_needs_no_sync() {
    let turn = turn_after_two();
    assert_eq!(turn.arrive(&caller(16), at_micros(101)), Role::Served);
}

#[test]
fn who_completes_the_group_leads_it() {
    let turn = turn_after_two();
    let (first, second) = (caller(24), caller(32));
    let left = Role::Wait(SYNC_TIME - at_micros(10));
    assert_eq!(turn.arrive(&first, at_micros(110)), left);
    assert_eq!(turn.arrive(&second, at_micros(120)), Role::Lead);
    assert_eq!(turn.come_back(&first, Call::None, at_micros(190)), Role::Wait(WAIT_MAX));
    assert_eq!(pass_on(&turn, 32, 200), 1);
    assert_eq!(turn.come_back(&first, Call::Look, at_micros(201)), Role::Served);
}

#[test]
fn a_group_that_is_not_complete_in_time_is_led_by_the_first() {
    let turn = turn_after_two();
    let first = caller(24);
    assert_eq!(turn.arrive(&first, at_micros(110)), Role::Wait(SYNC_TIME - at_micros(10)));
    assert_eq!(turn.come_back(&first, Call::None, at_micros(181)), Role::Lead);
    assert_eq!(pass_on(&turn, 24, 260), 0);
}

#[test]
fn who_comes_back_later_than_a_sync_takes_waits_for_nobody() {
    let turn = turn_after_two();
    assert_eq!(turn.arrive(&caller(24), at_micros(100 + 80)), Role::Lead);
}

#[test]
fn without_gathering_those_who_came_meanwhile_are_next() {
    let turn = turn(Gathering::Off);
    let callers = [caller(8), caller(16), caller(24)];
    assert_eq!(turn.arrive(&callers[0], at_micros(0)), Role::Lead);
    for later in &callers[1..] {
        assert_eq!(turn.arrive(later, at_micros(1)), Role::Wait(WAIT_MAX));
    }
    assert_eq!(pass_on(&turn, 8, 80), 0);
    assert_eq!((call_of(&callers[1]), call_of(&callers[2])), (Call::Lead, Call::None));
    assert_eq!(turn.come_back(&callers[1], Call::Lead, at_micros(81)), Role::Lead);
    assert_eq!(pass_on(&turn, 24, 160), 1);
    assert_eq!(turn.arrive(&caller(32), at_micros(161)), Role::Lead);
}

#[test]
fn one_who_waits_watches_over_the_group_that_gathers() {
    let turn = turn(Gathering::Adaptive);
    let (first, second, third) = (caller(8), caller(16), caller(24));
    assert_eq!(turn.arrive(&first, at_micros(0)), Role::Lead);
    assert_eq!(turn.arrive(&second, at_micros(1)), Role::Wait(WAIT_MAX));
    // The sync began before the second had appended: it waits for the first to come back.
    assert_eq!(pass_on(&turn, 8, 80), 0);
    assert_eq!(call_of(&second), Call::Watch);
    let left = Role::Wait(SYNC_TIME - at_micros(5));
    assert_eq!(turn.come_back(&second, Call::Watch, at_micros(85)), left);
    assert_eq!(turn.arrive(&third, at_micros(90)), Role::Lead);
    assert_eq!(pass_on(&turn, 24, 170), 1);
}

#[test]
fn after_a_failure_each_finds_out_for_itself_and_one_leads() {
    let turn = turn(Gathering::Adaptive);
    let (first, second, third) = (caller(8), caller(16), caller(24));
    assert_eq!(turn.arrive(&first, at_micros(0)), Role::Lead);
    assert_eq!(turn.arrive(&second, at_micros(1)), Role::Wait(WAIT_MAX));
    assert_eq!(turn.arrive(&third, at_micros(2)), Role::Wait(WAIT_MAX));
    turn.give_up();
    assert_eq!((call_of(&second), call_of(&third)), (Call::Look, Call::Look));
    turn.leave(&second);
    assert_eq!(turn.come_back(&third, Call::Look, at_micros(9)), Role::Lead);
    assert_eq!(pass_on(&turn, 24, 90), 0);
}

#[test]
fn of_two_calls_the_greater_counts_once() {
    let caller = caller(8);
    caller.call(Call::Lead);
    caller.call(Call::Look);
    assert_eq!((call_of(&caller), call_of(&caller)), (Call::Lead, Call::None));
}

#[test]
fn threads_share_syncs_and_each_is_served() {
    const THREADS: u64 = 6;
    const SYNCS_OF_EACH: u64 = 300;
    let (turn, end) = (turn(Gathering::Adaptive), AtomicU64::new(0));
    let (leaders, clock) = (AtomicU64::new(0), SystemClock::new());
    let wish = || {
        let caller = caller(end.fetch_add(8, Ordering::SeqCst) + 8);
        let mut role = turn.arrive(&caller, clock.monotonic());
        loop {
            match role {
                Role::Served => return assert!(turn.durable() >= caller.end()),
                Role::Wait(longest) => {
                    let call = caller.wait(longest);
                    role = turn.come_back(&caller, call, clock.monotonic());
                }
                Role::Lead => {
                    assert_eq!(leaders.fetch_add(1, Ordering::SeqCst), 0, "G1");
                    let synced = Lsn::from_u64(end.load(Ordering::SeqCst));
                    std::thread::sleep(SYNC_TIME);
                    assert_eq!(leaders.fetch_sub(1, Ordering::SeqCst), 1, "G1");
                    for other in turn.pass_on(synced, SYNC_TIME, clock.monotonic()) {
                        other.call(Call::Look);
                    }
                    role = Role::Served;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..SYNCS_OF_EACH).for_each(|_| wish()));
        }
    });
    assert_eq!(turn.durable().as_u64(), 8 * THREADS * SYNCS_OF_EACH);
}
