//! Work that goes on beside damage.

use everhash_index::{Error, Result};

/// Returns what was done, or nothing if it met damage: that is kept in `damage`, the first of it.
///
/// # Errors
/// Those of `done`, but for [`Error::Corrupt`].
pub fn or_damage<T: Default>(done: Result<T>, damage: &mut Option<Error>) -> Result<T> {
    match done {
        Err(error @ Error::Corrupt { .. }) => {
            damage.get_or_insert(error);
            Ok(T::default())
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_goes_on_beside_damage_and_nothing_else() {
        // Fails if another error is taken for damage, or if later damage hides the first.
        let corrupt = |at| Error::Corrupt { at, broken: "a test says so" };
        let mut damage = None;
        assert_eq!(or_damage(Ok(7), &mut damage).unwrap(), 7);
        assert!(matches!(
            or_damage::<u64>(Err(Error::Poisoned), &mut damage),
            Err(Error::Poisoned)
        ));
        assert!(damage.is_none());
        assert_eq!(or_damage::<u64>(Err(corrupt(8)), &mut damage).unwrap(), 0);
        assert_eq!(or_damage::<u64>(Err(corrupt(16)), &mut damage).unwrap(), 0);
        assert!(matches!(damage, Some(Error::Corrupt { at: 8, .. })));
    }
}
