//! What a write does to a key, decided under the lock of its part of a table.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use everhash_index::{Change, Form, MAX_KEY_BYTES, Result, admit};

/// What becomes of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<V> {
    /// Nothing.
    Keep,
    /// It has this value.
    Put(V),
    /// It is not there.
    Remove,
}

/// An operation that writes one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Edit<V> {
    /// Adds a pair if the key is absent; answers whether it was.
    Insert(V),
    /// Adds a pair or replaces its value; answers whether the key was present.
    Put(V),
    /// Replaces a value if the key is present; answers whether it was.
    Update(V),
    /// Removes a key; answers whether it was present.
    Remove,
}

impl<V> Edit<V> {
    /// Returns the operation's answer, and what becomes of the key.
    #[inline(always)]
    pub fn decide(self, is_present: bool) -> (bool, Step<V>) {
        match (self, is_present) {
            (Edit::Insert(_), true) | (Edit::Update(_) | Edit::Remove, false) => {
                (false, Step::Keep)
            }
            (Edit::Insert(value), false) | (Edit::Update(value), true) => (true, Step::Put(value)),
            (Edit::Put(value), _) => (is_present, Step::Put(value)),
            (Edit::Remove, true) => (true, Step::Remove),
        }
    }
}

/// Returns whether a key has the form of a pool's keys: another one is absent.
#[inline(always)]
pub fn has_form(form: Form, key: &[u8]) -> bool {
    match form {
        Form::Fixed { key_bytes, .. } => key.len() == key_bytes as usize,
        Form::Variable => key.len() <= MAX_KEY_BYTES,
    }
}

/// Runs `modify`, which calls what it is given once, under the lock of `key`. That calls `change`
/// and admits its value.
///
/// A panic of `change` leaves the key as it was and is resumed when the lock is free again: nothing
/// was stored, so nothing is poisoned.
///
/// # Errors
/// As [`admit`] for the value that `change` returns, and those of `modify`.
pub fn modify_calmly(
    form: Form,
    key: &[u8],
    change: &mut dyn FnMut(Option<&[u8]>) -> Change,
    modify: impl FnOnce(&mut dyn FnMut(Option<&[u8]>) -> Result<Change>) -> Result<()>,
) -> Result<()> {
    let mut panic = None;
    let outcome = modify(&mut |present| match catch_unwind(AssertUnwindSafe(|| change(present))) {
        Ok(Change::Put(value)) => {
            admit(form, key, &value)?;
            Ok(Change::Put(value))
        }
        Ok(change) => Ok(change),
        Err(payload) => {
            panic = Some(payload);
            Ok(Change::Keep)
        }
    });
    match panic {
        Some(payload) => resume_unwind(payload),
        None => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_decides_as_the_contract_says() {
        // Fails if an answer or a step is that of another operation.
        let decided = |edit: Edit<u64>| [false, true].map(|is_present| edit.decide(is_present));
        let (put, keep) = (Step::Put(7), Step::Keep);
        assert_eq!(decided(Edit::Insert(7)), [(true, put), (false, keep)]);
        assert_eq!(decided(Edit::Put(7)), [(false, put), (true, put)]);
        assert_eq!(decided(Edit::Update(7)), [(false, keep), (true, put)]);
        assert_eq!(decided(Edit::Remove), [(false, keep), (true, Step::Remove)]);
    }

    #[test]
    fn a_key_that_no_pool_takes_has_no_form() {
        // Fails if a key is looked for that cannot be there, whose length nothing bounds.
        assert!([7, 9].iter().all(|bytes| !has_form(Form::WORDS, &vec![0; *bytes])));
        assert!(has_form(Form::WORDS, &[0; 8]) && has_form(Form::Variable, b""));
        assert!(has_form(Form::Variable, &[0; MAX_KEY_BYTES]));
        assert!(!has_form(Form::Variable, &vec![0; MAX_KEY_BYTES + 1]));
    }

    #[test]
    fn a_panic_of_a_change_waits_until_the_lock_is_free() {
        // Fails if the panic unwinds through the holder of the lock, or is swallowed.
        let lock = std::sync::Mutex::new(());
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let change = &mut |_: Option<&[u8]>| resume_unwind(Box::new("thrown"));
            modify_calmly(Form::Variable, b"key", change, |decide| {
                let _held = lock.lock();
                assert_eq!(decide(None)?, Change::Keep);
                Ok(())
            })
        }));
        assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"thrown"));
        assert!(lock.lock().is_ok());
    }

    #[test]
    fn a_value_of_another_form_is_refused() {
        // Fails if what a change returns is stored as it comes.
        let change = &mut |_: Option<&[u8]>| Change::Put(vec![1, 2, 3]);
        let outcome = modify_calmly(Form::WORDS, &[0; 8], change, |decide| decide(None).map(drop));
        assert!(matches!(outcome, Err(everhash_index::Error::WrongForm { .. })));
    }
}
