//! The checker before its own judge: valid histories, mutated ones, and a slower checker.

use core::cell::Cell;
use core::time::Duration;

use super::tracker::{Clock, Tracker};
use super::{Answer, Call, Event, Verdict, linearize};
use crate::OpenTable;
use crate::random::Random;
use crate::reference::Reference;
use crate::workload::{Edit, Op, Shape};
use everhash_index::{Design, Form};

/// Makes a history that is linearizable by construction: calls take effect one after the other,
/// and begin some time before and end some time after.
fn valid(random: &mut Random, calls: u64, spread: u64) -> Vec<Event> {
    let mut value = None;
    let mut times = Vec::new();
    let mut events: Vec<Event> = (0..calls)
        .map(|n| {
            let call = match random.below(9) {
                0 | 1 => Call::Insert(n as u32 + 10),
                2 | 3 => Call::Put(n as u32 + 10),
                4 => Call::Update(n as u32 + 10),
                5 => Call::Remove,
                6 => Call::Contains,
                7 => Call::Modify(*random.pick(&[
                    Edit::Keep,
                    Edit::Drop,
                    Edit::Set(n as u32 + 10),
                    Edit::Toggle(n as u32 + 10),
                ])),
                _ => Call::Get,
            };
            let (after, answer) = call.apply(value);
            value = after;
            let moment = (n + 10) * 1000;
            let (begin, end) = (moment - random.below(spread), moment + random.below(spread) + 1);
            times.extend([begin, end]);
            Event { call, answer: Some(answer), begin, end }
        })
        .collect();
    // No two times are equal: the order of equal ones is that of the events.
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by_key(|place| (times[*place], *place % 2, *place));
    for (time, place) in order.into_iter().enumerate() {
        let event = &mut events[place / 2];
        if place % 2 == 0 { event.begin = time as u64 } else { event.end = time as u64 }
    }
    events
}

/// Tries every order. Knows nothing of the checker's rules but their meaning.
fn explained(value: Option<u32>, left: &[Event]) -> bool {
    if left.iter().all(|event| event.answer.is_none()) {
        return true;
    }
    (0..left.len()).any(|first| {
        let event = left[first];
        let too_early = left.iter().any(|other| other.answer.is_some() && other.end < event.begin);
        let (after, answer) = event.call.apply(value);
        let wrong = event.answer.is_some_and(|it| it != answer && it != Answer::Unknown);
        let rest: Vec<Event> = [&left[..first], &left[first + 1..]].concat();
        !too_early && !wrong && explained(after, &rest)
    })
}

#[test]
fn every_valid_history_is_accepted() {
    // Fails if the checker would raise a false alarm.
    let mut random = Random::new(1);
    for round in 0..2000 {
        let calls = 1 + random.below(40);
        let mut events = valid(&mut random, calls, 1 + round % 5000);
        // Some answers are lost in a crash, and some cannot be told.
        for event in &mut events {
            match random.below(12) {
                0 => event.answer = Some(Answer::Unknown),
                1 if round % 2 == 0 => event.answer = None,
                _ => {}
            }
        }
        // A call that never answered has no successor in time.
        assert_eq!(linearize(None, &events), Verdict::Linearizable, "round {round}: {events:?}");
    }
}

#[test]
fn a_thousand_spoiled_histories_are_rejected() {
    // Fails if a lost, phantom, stale, duplicate or reordered answer could pass.
    let mut random = Random::new(2);
    let mut rejected = [0; 5];
    while rejected.iter().any(|count| *count < 200) {
        let calls = 4 + random.below(20);
        let mut events = valid(&mut random, calls, 2500);
        let last = events.iter().map(|event| event.end).max().unwrap();
        let at = |n: u64, call, answer| Event {
            call,
            answer: Some(answer),
            begin: last + 2 * n,
            end: last + 2 * n + 1,
        };
        let put = |n: u64, value| at(n, Call::Put(value), Answer::Unknown);
        let get = |n: u64, found| at(n, Call::Get, Answer::Value(found));
        let kind = random.below(5) as usize;
        let tail = match kind {
            // Lost: the value that was put last is not there.
            0 => vec![put(1, 5), get(2, None)],
            // Phantom: a value that nobody wrote.
            1 => vec![get(1, Some(9999))],
            // Stale: the value before the last.
            2 => vec![put(1, 5), put(2, 6), get(3, Some(5))],
            // Duplicate: the same key is added twice, or removed twice.
            3 => {
                let call = *random.pick(&[Call::Insert(5), Call::Remove]);
                vec![at(1, call, Answer::Flag(true)), at(2, call, Answer::Flag(true))]
            }
            // Reordered: during one put, a reader sees the new value and then the old.
            _ => {
                let long = Event { end: last + 99, ..at(2, Call::Put(6), Answer::Flag(true)) };
                vec![put(1, 5), long, get(3, Some(6)), get(4, Some(5))]
            }
        };
        events.extend(tail);
        // Their place in the list says nothing.
        let turn = random.below(events.len() as u64) as usize;
        events.rotate_left(turn);
        assert_eq!(linearize(None, &events), Verdict::Impossible, "kind {kind}: {events:?}");
        rejected[kind] += 1;
    }
}

#[test]
fn the_checker_agrees_with_one_that_tries_every_order() {
    // Fails if the shortcuts of the checker (windows, memory, skipped calls) change a verdict.
    let mut random = Random::new(3);
    let mut verdicts = [0, 0];
    for round in 0..6000 {
        let mut events = valid(&mut random, 6, 4000);
        for _ in 0..random.below(3) {
            let donor = events[random.below(6) as usize];
            let event = &mut events[random.below(6) as usize];
            match random.below(4) {
                0 => event.answer = donor.answer,
                1 => event.call = donor.call,
                2 => event.answer = None,
                _ => {
                    event.answer = Some(match event.answer {
                        Some(Answer::Flag(flag)) => Answer::Flag(!flag),
                        _ => Answer::Value(None),
                    });
                }
            }
        }
        let expected = explained(None, &events);
        let verdict = linearize(None, &events);
        assert_eq!(verdict == Verdict::Linearizable, expected, "round {round}: {events:?}");
        verdicts[usize::from(expected)] += 1;
    }
    assert!(verdicts.iter().all(|count| *count > 1000), "{verdicts:?}");
}

#[test]
fn a_long_history_of_many_threads_is_decided_quickly() {
    // Fails if the search explodes where every reader overlaps many writers.
    let mut random = Random::new(4);
    for _ in 0..5 {
        let events = valid(&mut random, 20_000, 4000);
        assert_eq!(linearize(None, &events), Verdict::Linearizable);
    }
}

#[test]
fn a_crash_leaves_what_had_ended_without_doubt_and_what_had_begun_with() {
    // Fails if an answer that somebody has may be taken back, or if a call counts that came later.
    let answer = Some(Answer::Flag(true));
    let event = Event { call: Call::Remove, answer, begin: 5, end: 8 };
    assert_eq!(event.until(9), Some(event));
    for time in [6, 8] {
        assert_eq!(event.until(time), Some(Event { answer: None, ..event }));
    }
    assert_eq!([event.until(5), event.until(3)], [None, None]);
}

/// A clock by which all calls overlap.
struct AtOnce(Cell<u64>);

impl Clock for AtOnce {
    fn begin(&self) -> u64 {
        self.0.replace(self.0.get() + 1)
    }

    fn end(&self, begin: u64) -> u64 {
        begin + 1000
    }
}

#[test]
fn what_a_search_gave_up_is_counted_and_never_passes_for_an_answer() {
    // Fails if a value that nobody put is explained because there are too many orders to try.
    let (shape, mut now) = (Shape::tiny(Form::WORDS), Duration::ZERO);
    let open = OpenTable::tiny(&Design::of::<Reference>(), Form::WORDS, 1 << 20).unwrap();
    let (tracker, clock) = (Tracker::new(shape, [1]), AtOnce(Cell::new(0)));
    for value in 0..16 {
        let put = Op::PutMany(vec![(1, value)]);
        tracker.perform(open.table(), &clock, &mut now, &put).unwrap();
    }
    assert_eq!(tracker.judge().unwrap(), 0);
    let told = tracker.may_leave(1, 5000, Some(b"stranger")).unwrap_err();
    assert_eq!(told, "there are too many orders to decide");
    open.table().put(&shape.key(1), &shape.value(99)).unwrap();
    tracker.perform(open.table(), &clock, &mut now, &Op::Get(1)).unwrap();
    assert_eq!(tracker.judge().unwrap(), 1);
}
