//! Histories: what was asked about one key, by whom, when, and what the answer was.

use crate::workload::Edit;

/// What was asked about one key. Values are numbers; equal numbers stand for equal bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Call {
    /// Adds a value if there is none.
    Insert(u32),
    /// Adds a value or replaces the one there is.
    Put(u32),
    /// Replaces the value if there is one.
    Update(u32),
    /// Reads and changes in one step.
    Modify(Edit),
    /// Removes the value.
    Remove,
    /// Reads the value.
    Get,
    /// Asks whether there is a value.
    Contains,
}

/// What came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Answer {
    /// Yes or no.
    Flag(bool),
    /// A value, or none.
    Value(Option<u32>),
    /// The operation was done, and its answer for this key alone is not known.
    Unknown,
}

/// One call, from its begin to its end on a clock that all threads share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Event {
    /// What was asked.
    pub call: Call,
    /// What came back; `None` if nothing did before the crash: the call may have taken effect or
    /// not.
    pub answer: Option<Answer>,
    /// When it was called. No two times in a history are equal.
    pub begin: u64,
    /// When it returned; of no meaning without an answer.
    pub end: u64,
}

impl Call {
    /// Performs the call on a key that has `value`; returns the value after it and the answer.
    pub fn apply(self, value: Option<u32>) -> (Option<u32>, Answer) {
        let present = Answer::Flag(value.is_some());
        match self {
            Call::Insert(new) => (value.or(Some(new)), Answer::Flag(value.is_none())),
            Call::Put(new) => (Some(new), present),
            Call::Update(new) => (value.and(Some(new)), present),
            Call::Remove => (None, present),
            Call::Get => (value, Answer::Value(value)),
            Call::Contains => (value, present),
            Call::Modify(edit) => {
                let after = match (edit, value) {
                    (Edit::Keep, _) => value,
                    (Edit::Set(new), _) | (Edit::Toggle(new), None) => Some(new),
                    (Edit::Drop | Edit::Toggle(_), _) => None,
                };
                (after, Answer::Value(value))
            }
        }
    }
}

impl Event {
    /// Returns the event as a crash at `time` leaves it: as it is if it had ended, without an
    /// answer if it had begun, and `None` if it had not.
    pub fn until(&self, time: u64) -> Option<Event> {
        let answer = if self.end < time { self.answer } else { None };
        (self.begin < time).then_some(Event { answer, ..*self })
    }
}
