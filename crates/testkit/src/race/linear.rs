//! Linearizability of the history of one key.
//!
//! The search of Wing and Gong (1993) with the memory of Lowe (2017): calls are put in an order
//! one by one, and a set of calls that was put before the same value once is not searched again.
//! A map is linearizable if every key is, so keys are checked alone (Herlihy and Wing, 1990).

use std::collections::HashSet;

use super::history::{Answer, Event};

/// How many steps a search may take before it gives up.
///
/// Source: ours; histories of the judges take a few steps an event, and one that explodes would
/// take hours. Fewer where a test lets one explode.
const STEPS: usize = if cfg!(test) { 200_000 } else { 3_000_000 };

/// What a search came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// There is an order that explains every answer.
    Linearizable,
    /// There is none.
    Impossible,
    /// The search gave up.
    Undecided,
}

/// Searches for an order of the calls that explains every answer: each call takes effect at one
/// moment between its begin and its end; one without an answer after its begin, or never.
///
/// ```
/// use everhash_testkit::race::{Answer, Call, Event, Verdict, linearize};
/// let put = Event { call: Call::Put(7), answer: Some(Answer::Flag(false)), begin: 0, end: 2 };
/// let get = |begin, end, found| {
///     Event { call: Call::Get, answer: Some(Answer::Value(found)), begin, end }
/// };
/// assert_eq!(linearize(None, &[put, get(1, 3, None)]), Verdict::Linearizable);
/// assert_eq!(linearize(None, &[put, get(3, 4, None)]), Verdict::Impossible);
/// ```
pub fn linearize(initial: Option<u32>, events: &[Event]) -> Verdict {
    let mut ended: Vec<Event> = events.iter().filter(|e| e.answer.is_some()).copied().collect();
    let mut open: Vec<Event> = events.iter().filter(|e| e.answer.is_none()).copied().collect();
    ended.sort_by_key(|event| event.begin);
    open.sort_by_key(|event| event.begin);
    let start = Node { low: 0, ahead: Vec::new(), taken: Vec::new(), value: initial };
    let mut seen = HashSet::from([start.clone()]);
    let mut stack = vec![start];
    while let Some(node) = stack.pop() {
        if node.low == ended.len() {
            return Verdict::Linearizable;
        }
        if seen.len() > STEPS {
            return Verdict::Undecided;
        }
        for next in node.successors(&ended, &open) {
            if seen.insert(next.clone()) {
                stack.push(next);
            }
        }
    }
    Verdict::Impossible
}

/// Which calls have been put in order, and the value after them.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Node {
    /// All ended calls before this one.
    low: usize,
    /// Ended calls behind `low`, ascending.
    ahead: Vec<u32>,
    /// Calls without an answer, ascending.
    taken: Vec<u32>,
    value: Option<u32>,
}

impl Node {
    fn successors(&self, ended: &[Event], open: &[Event]) -> Vec<Node> {
        let mut nodes = Vec::new();
        // Whatever comes next must have begun before every call ended that is not yet in order.
        let mut deadline = u64::MAX;
        for (index, event) in (self.low..).zip(&ended[self.low..]) {
            if event.begin > deadline {
                break;
            }
            if self.ahead.binary_search(&(index as u32)).is_ok() {
                continue;
            }
            deadline = deadline.min(event.end);
            let (value, answer) = event.call.apply(self.value);
            if event.answer == Some(answer) || event.answer == Some(Answer::Unknown) {
                nodes.push(self.with(index, value));
            }
        }
        let allowed = (0u32..).zip(open).take_while(|(_, event)| event.begin < deadline);
        for (index, event) in allowed {
            let Err(place) = self.taken.binary_search(&index) else { continue };
            let (value, _) = event.call.apply(self.value);
            // A call that changes nothing need not be put in order.
            if value != self.value {
                let mut next = Node { value, ..self.clone() };
                next.taken.insert(place, index);
                nodes.push(next);
            }
        }
        // The stack takes the last first: the ended call that began first is the likeliest.
        nodes.reverse();
        nodes
    }

    fn with(&self, index: usize, value: Option<u32>) -> Node {
        let mut next = Node { value, ..self.clone() };
        if index > self.low {
            let place = next.ahead.partition_point(|other| *other < index as u32);
            next.ahead.insert(place, index as u32);
            return next;
        }
        next.low += 1;
        let passed = (next.low as u32..).zip(&next.ahead).take_while(|(low, it)| low == *it);
        let passed = passed.count();
        next.ahead.drain(..passed);
        next.low += passed;
        next
    }
}
