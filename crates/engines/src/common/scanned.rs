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

#[cfg(test)]
mod tests {
    use super::*;

    fn corrupt(at: u64) -> Error {
        Error::Corrupt { at, broken: "a test says so" }
    }

    /// Returns a part of one pair, and of another one that is damaged.
    fn damaged(at: u64) -> Part {
        let mut part = Part::default();
        let sound = |key: &mut Vec<u8>, _: &mut Vec<u8>| {
            key.push(at as u8);
            Ok(())
        };
        part.add(sound).unwrap();
        part.add(|_, _| Err(corrupt(at))).unwrap();
        part
    }

    #[test]
    fn the_pairs_beside_damage_are_visited_and_the_first_damage_is_told() {
        // Fails if damage is swallowed, or takes what is sound beside it.
        let (mut part, mut keys) = (damaged(8), Vec::new());
        part.append(damaged(16));
        let told = part.visit(&mut |key, _| keys.extend_from_slice(key));
        assert!(matches!(told, Err(Error::Corrupt { at: 8, .. })), "{told:?}");
        assert_eq!(keys, [8, 16]);
        let mut part = Part::default();
        part.append(damaged(16));
        assert!(matches!(part.visit(&mut |_, _| {}), Err(Error::Corrupt { at: 16, .. })));
        let refused = Part::default().add(|_, _| Err(Error::Poisoned));
        assert!(matches!(refused, Err(Error::Poisoned)));
        assert_eq!(Part::default().visit(&mut |_, _| {}).unwrap(), 0);
    }

    #[test]
    fn a_scan_ends_before_damage_and_nothing_else() {
        // Fails if a call goes on behind damage: its caller would not know where that is.
        let ends = |copied: Result<Part>| ends_before(&copied, |part| part);
        assert!(ends(Ok(damaged(8))) && ends(Err(corrupt(8))));
        assert!(!ends(Ok(Part::default())) && !ends(Err(Error::Poisoned)));
    }
}
