//! What a scan copies of one place of a table before it visits it.

use everhash_index::{Error, Result};

use super::damage::or_damage;

/// The pairs of a place that are sound, and what is wrong with another one.
#[derive(Default)]
pub struct Part {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    damage: Option<Error>,
}

impl Part {
    /// Adds the pair whose key and value `read` leaves in its arguments. If it is damaged, the
    /// others count all the same.
    ///
    /// # Errors
    /// Those of `read`, but for [`Error::Corrupt`].
    pub fn add(
        &mut self,
        read: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let read = read(&mut key, &mut value).map(|()| self.pairs.push((key, value)));
        or_damage(read, &mut self.damage)
    }

    /// Adds what is there of another part of the same place.
    pub fn append(&mut self, mut other: Part) {
        self.pairs.append(&mut other.pairs);
        self.damage = self.damage.take().or(other.damage);
    }

    /// Visits the pairs; returns how many they are.
    ///
    /// # Errors
    /// The damage of another one.
    pub fn visit(self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        self.pairs.iter().for_each(|(key, value)| visit(key, value));
        self.damage.map_or(Ok(self.pairs.len()), Err)
    }
}

/// Returns whether a scan ends before a place of which this was copied: the next call begins with
/// the damage, so that its caller knows where that is.
pub fn ends_before<T>(copied: &Result<T>, part: impl FnOnce(&T) -> &Part) -> bool {
    match copied {
        Ok(copied) => part(copied).damage.is_some(),
        Err(error) => matches!(error, Error::Corrupt { .. }),
    }
}
