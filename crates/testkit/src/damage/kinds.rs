//! The kinds of damage: of one bit, of several, of arbitrary words, and a lost end.

use everhash_index::{Error, Form, Result};

use super::victim::Victim;
use super::ways::Told;
use super::{Effort, Judged, Report};
use crate::Failure;
use crate::failure::no_panic;
use crate::random::Random;

/// Words of a cache line.
const LINE_WORDS: usize = 8;

/// What a pool made of its damage.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Noticed,
    ByCheckAlone,
    Harmless,
    InBarePairs,
}

/// Turns errors that name damage into `None`, and all others into failures.
fn damage_reported<T>(answer: Result<Judged<T>>) -> Judged<Option<T>> {
    match answer {
        Ok(answer) => answer.map(Some),
        Err(Error::Corrupt { .. } | Error::Unsupported { .. }) => Ok(None),
        Err(other) => Err(names_no_damage(&other.to_string())),
    }
}

fn names_no_damage(error: &str) -> Failure {
    Failure::new(format!("an error that tells of no damage: {error}"))
}

/// Asks a pool of which at most `hit` pairs are damaged. A wrong answer is a text.
fn classify(
    victim: &Victim,
    effort: &Effort,
    words: &[u64],
    first: usize,
    hit: usize,
) -> Judged<core::result::Result<Class, String>> {
    let told = victim.ask(words, first)?;
    if let Some(other) = &told.other {
        return Err(names_no_damage(other));
    }
    let bare = effort.bare_pairs && victim.shape.form != Form::Variable;
    let Told { errors, story, wrong, strangers, miscounted, .. } = told;
    // A key that became another key of the pool is one pair less.
    let in_pairs = wrong.len().max(strangers.len()) <= hit && miscounted < hit as u64;
    Ok(match story {
        None if errors > 0 => Ok(Class::Noticed),
        None => match damage_reported(victim.add(words))? {
            Some(()) => Ok(Class::Harmless),
            None => Ok(Class::Noticed),
        },
        Some(_) if bare && in_pairs => Ok(Class::InBarePairs),
        Some(_) if bare && !victim.is_sound(words) => Ok(Class::ByCheckAlone),
        Some(story) => Err(story),
    })
}

/// Flips one bit after the other.
pub(super) fn flip(victim: &Victim, effort: &Effort, report: &mut Report) -> Judged<()> {
    let mut words = victim.words.clone();
    for bit in (0..words.len() * 64).step_by(effort.flip_every) {
        let (index, number) = (bit / 64, bit / effort.flip_every);
        let whole = words[index];
        // Most words of a pool are zero, and lie in free space: one bit of each is enough.
        let skipped = whole == 0 && bit % 64 / effort.flip_every != index % 64 / effort.flip_every;
        if skipped || !victim.closed && effort.unclosed.contains(&index) {
            continue;
        }
        words[index] ^= 1 << (bit % 64);
        let judged = no_panic(|| {
            if number.is_multiple_of(effort.work_every) {
                victim.ask_everything(&words)?;
            }
            classify(victim, effort, &words, number, 1)?.map_err(Failure::new)
        });
        match judged.map_err(|told| told.at(format!("bit {} of word {index}", bit % 64)))? {
            Class::Noticed => report.noticed += 1,
            Class::ByCheckAlone => report.by_check_alone += 1,
            Class::Harmless => report.harmless += 1,
            Class::InBarePairs => report.in_bare_pairs += 1,
        }
        words[index] = whole;
    }
    Ok(())
}

/// Damages more than one bit, where the pool holds something.
pub(super) fn several(victim: &Victim, effort: &Effort, report: &mut Report) -> Judged<()> {
    let mut random = Random::new(effort.seed ^ 0x5e7e);
    let may_change = |index: &usize| {
        victim.words[*index] != 0 && (victim.closed || !effort.unclosed.contains(index))
    };
    let used: Vec<usize> = (0..victim.words.len()).filter(may_change).collect();
    let mut first_missed = None;
    let (before, missed_before) = (report.several, report.several_missed);
    for image in 0..effort.several {
        let mut words = victim.words.clone();
        let (kind, places) = damage(&mut words, &used, &mut random);
        if words == victim.words {
            continue;
        }
        let place = || format!("image {image}, {kind}, words {places:?}");
        let judged = no_panic(|| classify(victim, effort, &words, image as usize, 2));
        report.several += 1;
        match judged.map_err(|told| told.at(place()))? {
            Ok(Class::Noticed) => report.several_noticed += 1,
            Ok(_) => {}
            Err(story) => {
                report.several_missed += 1;
                first_missed.get_or_insert_with(|| Failure::new(story).at(place()));
            }
        }
    }
    let (all, missed) = (report.several - before, report.several_missed - missed_before);
    let may_miss = all.checked_div(effort.missed_one_in).unwrap_or(0);
    match first_missed {
        Some(failure) if missed > may_miss => {
            Err(failure.at(format!("{missed} of {all} damages missed, {may_miss} allowed; first")))
        }
        _ => Ok(()),
    }
}

/// Damages one or two of the words in use; returns how, and where.
fn damage(words: &mut [u64], used: &[usize], random: &mut Random) -> (&'static str, [usize; 2]) {
    let one = *random.pick(used);
    let other = *random.pick(used);
    let line = one - one % LINE_WORDS;
    let near: Vec<usize> =
        used.iter().copied().filter(|index| (line..line + LINE_WORDS).contains(index)).collect();
    let beside = *random.pick(&near);
    let mut flip = |index: usize, random: &mut Random| words[index] ^= 1 << random.below(64);
    match random.below(5) {
        0 => {
            flip(one, random);
            flip(one, random);
            ("two bits of a word", [one, one])
        }
        1 => {
            flip(one, random);
            flip(beside, random);
            ("two bits of a line", [one, beside])
        }
        2 => {
            // A length, wherever it lies in its word, by one, or by one unit of four or eight.
            let little = 1 << random.below(64);
            let word = words[one];
            words[one] = match random.once_in(2) {
                true => word.wrapping_add(little),
                false => word.wrapping_sub(little),
            };
            ("a changed number", [one, one])
        }
        3 => {
            words.swap(one, beside);
            ("two words of a line exchanged", [one, beside])
        }
        _ => {
            words[one] = words[other];
            ("a word replaced by another", [one, other])
        }
    }
}

/// Replaces words by arbitrary ones. Which answers are right nobody knows then.
pub(super) fn exchange(victim: &Victim, effort: &Effort, report: &mut Report) -> Judged<()> {
    let mut random = Random::new(effort.seed);
    let length = victim.words.len() as u64;
    for image in 0..effort.images / 2 {
        let mut words = victim.words.clone();
        for _ in 0..=random.below(3) {
            // Behind the header, whose checksum would refuse it.
            let (to, from) = (64 + random.below(length - 64), random.below(length));
            words[to as usize] = match random.below(4) {
                0 => 0,
                1 => random.next(),
                _ => words[from as usize],
            };
        }
        let asked = no_panic(|| victim.ask_everything(&words));
        let opened = asked.map_err(|failure| failure.at(format!("image {image}")))?;
        report.opened += u32::from(opened);
    }
    Ok(())
}

/// Cuts off the end, of all lengths.
pub(super) fn cut(victim: &Victim, effort: &Effort, report: &mut Report) -> Judged<()> {
    for length in (0..victim.words.len()).step_by(effort.cut_every) {
        let place = |failure: Failure| failure.at(format!("cut to {length} words"));
        // Any error will do: the medium may say first that it is too short.
        let told = no_panic(|| victim.ask(&victim.words[..length], length)).map_err(place)?;
        if let Some(story) = told.story {
            return Err(place(Failure::new(story)));
        }
        report.cut_and_opened += u64::from(told.errors == 0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Reference;
    use everhash_index::Design;
    use std::collections::BTreeSet;

    #[test]
    fn every_bit_of_a_word_in_use_is_flipped_and_one_of_each_other() {
        // Fails if words are left out: those of free space, or those of a closed pool that only
        // look like a crash in one that was left open.
        let design = Design::of::<Reference>();
        for closed in [true, false] {
            let effort = Effort { unclosed: 64..100, flip_every: 7, ..Effort::default() };
            let victim = Victim::new(&design, Form::WORDS, &effort, closed).unwrap();
            let mut report = Report::default();
            flip(&victim, &effort, &mut report).unwrap();
            let turns =
                |index: usize| (0..64).filter(move |bit| (index * 64 + bit).is_multiple_of(7));
            let flipped = |(index, word): (usize, &u64)| match *word {
                _ if !closed && effort.unclosed.contains(&index) => 0,
                0 => turns(index).filter(|bit| bit / 7 == index % 64 / 7).count(),
                _ => turns(index).count(),
            };
            let flips: usize = victim.words.iter().enumerate().map(flipped).sum();
            assert_eq!(report.noticed + report.harmless, flips as u64, "closed: {closed}");
        }
    }

    #[test]
    fn damage_of_several_bits_is_of_every_kind_and_what_it_is_called() {
        // Fails if a kind of damage is never done, or is another one than its name says.
        let used: Vec<usize> = (3..40).collect();
        let sound: Vec<u64> = (0..48).map(|index| index * 0x0101_0101_0101).collect();
        let (mut random, mut kinds) = (Random::new(1), BTreeSet::new());
        for _ in 0..400 {
            let mut words = sound.clone();
            let (kind, [one, other]) = damage(&mut words, &used, &mut random);
            kinds.insert(kind);
            let changed = |index: &usize| words[*index] != sound[*index];
            assert!((0..48).filter(changed).all(|index| [one, other].contains(&index)), "{kind}");
            let bits: u32 = (0..48).map(|index| (words[index] ^ sound[index]).count_ones()).sum();
            let by = words[one].wrapping_sub(sound[one]);
            match kind {
                "two bits of a word" => assert!(one == other && [0, 2].contains(&bits)),
                "two bits of a line" => assert!(one / 8 == other / 8 && [0, 2].contains(&bits)),
                "a changed number" => {
                    assert!(by.is_power_of_two() || by.wrapping_neg().is_power_of_two());
                }
                "two words of a line exchanged" => {
                    assert!(one / 8 == other / 8 && words[one] == sound[other]);
                    assert_eq!(words[other], sound[one]);
                }
                _ => assert_eq!(words[one], sound[other]),
            }
        }
        assert_eq!(kinds.len(), 5, "{kinds:?}");
    }
}
