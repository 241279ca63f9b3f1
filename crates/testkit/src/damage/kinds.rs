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
