//! The walk over the states of one crash point: all of them if they are few, else by tiers.

use core::cell::RefCell;
use core::ops::ControlFlow;

use super::explorer::Moment;
use super::memory::{Memory, Place};
use super::mix::{Random, mix};
use super::seen::Seen;
use super::state::State;
use super::units::Units;
use crate::media::traced::Choice;

/// Words of a sector, the unit in which disks write.
///
/// Unit: words. Source: 512 bytes, the smallest sector of disks in use.
const SECTOR_WORDS: u32 = 64;

/// How many states of one crash point are judged.
///
/// A point with at most `product` states is enumerated completely. A larger one is first searched
/// lazily, which is complete too if `lazy` runs suffice, and else by tiers: none and all; one
/// place at each of its contents with the others at none and at all; pairs of places; random.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The largest number of states that is enumerated completely.
    pub product: u64,
    /// The largest number of runs in a lazy search; 0 for none. Only for judges that use
    /// [`State::on`].
    pub lazy: u64,
    /// How many states with one deviating place are judged at most.
    pub single: u64,
    /// How many states with a pair of deviating places are judged at most.
    pub pairs: u64,
    /// How many random states are judged.
    pub random: u64,
    /// The seed of the random choices.
    pub seed: u64,
    /// Whether a place has all of its pending stores or none: a weaker explorer, for the tests
    /// that show what it misses.
    pub whole_places: bool,
}

impl Default for Limits {
    /// 4096 states completely; above, no lazy search, 4096 single deviations, 4096 pairs and 256
    /// random states.
    fn default() -> Limits {
        Limits {
            product: 4096,
            lazy: 0,
            single: 4096,
            pairs: 4096,
            random: 256,
            seed: 1,
            whole_places: false,
        }
    }
}

impl Limits {
    /// Judges two states a point: nothing pending kept, and everything.
    pub const NONE_AND_ALL: Limits =
        Limits { product: 0, lazy: 0, single: 0, pairs: 0, random: 0, seed: 0, whole_places: true };
}

/// The counts of an explorer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Crash points visited.
    pub points: u64,
    /// States judged: distinct in content or context.
    pub states: u64,
    /// Points whose states were all judged, by enumeration or by a lazy search that ended.
    pub complete: u64,
    /// Points with only a part of their states judged.
    pub sampled: u64,
}

pub(super) struct Walk<'a> {
    memory: &'a mut Memory,
    moment: &'a Moment,
    units: &'a Units,
    count: &'a mut Count,
    /// The content of each unit that the image has now.
    chosen: Vec<u32>,
    /// Hash of the durable image, its length and the context.
    hash: u64,
}

impl<'a> Walk<'a> {
    pub fn new(
        memory: &'a mut Memory,
        moment: &'a Moment,
        units: &'a Units,
        count: &'a mut Count,
    ) -> Walk<'a> {
        Walk { memory, moment, units, count, chosen: vec![0; units.count()], hash: 0 }
    }

    pub fn run(
        mut self,
        limits: &Limits,
        seen: &mut Seen,
        salt: u64,
        judge: &mut impl FnMut(&State<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let length = self.memory.durable().len() as u64;
        let context = mix(mix(salt) ^ u64::from(self.moment.returned));
        self.hash = self.memory.durable_hash() ^ mix(context ^ length);
        let flow = if self.units.product() <= limits.product {
            self.count.complete += 1;
            self.product(seen, judge)
        } else {
            self.search(limits, seen, judge)
        };
        self.change(&vec![0; self.units.count()]);
        flow
    }

    fn search(
        &mut self,
        limits: &Limits,
        seen: &mut Seen,
        judge: &mut impl FnMut(&State<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        // The same choices over the same content: all that follows was judged before.
        if !seen.insert_point(self.signature()) {
            return ControlFlow::Continue(());
        }
        if limits.lazy > 0 && self.lazily(limits.lazy, seen, judge)? {
            self.count.complete += 1;
            return ControlFlow::Continue(());
        }
        self.count.sampled += 1;
        let mut random = Random::new(limits.seed ^ self.hash);
        let mut visit = |this: &mut Self, target: &[u32]| this.visit(target, seen, judge);
        self.none_and_all(&mut visit)?;
        self.single(limits.single, &mut visit)?;
        self.pairs(limits.pairs, &mut random, &mut visit)?;
        self.random(limits.random, &mut random, &mut visit)
    }

    /// Returns a hash of all choices of a crash here.
    fn signature(&self) -> u64 {
        (0..self.units.count()).fold(mix(self.hash), |hash, unit| {
            let contents = 0..self.units.contents(unit);
            contents.fold(mix(hash), |hash, it| mix(hash ^ self.units.difference(unit, it)))
        })
    }

    /// Visits one state, if it is new.
    fn visit(
        &mut self,
        target: &[u32],
        seen: &mut Seen,
        judge: &mut impl FnMut(&State<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let hash = target
            .iter()
            .enumerate()
            .fold(self.hash, |hash, (unit, content)| hash ^ self.units.difference(unit, *content));
        if !seen.insert(hash) {
            return ControlFlow::Continue(());
        }
        self.change(target);
        self.count.states += 1;
        judge(&State {
            words: self.memory.durable(),
            moment: self.moment,
            units: self.units,
            chosen: &self.chosen,
            lazy: None,
        })
    }

    /// Patches the image from the chosen contents to those of `target`.
    fn change(&mut self, target: &[u32]) {
        let image = self.memory.durable_mut();
        for (unit, (chosen, target)) in self.chosen.iter_mut().zip(target).enumerate() {
            if chosen != target {
                *chosen = *target;
                for (word, value) in
                    self.units.words(unit).iter().zip(self.units.values(unit, *target))
                {
                    image[*word as usize] = *value;
                }
            }
        }
    }

    /// Every state, counting through the contents as through the digits of a number.
    fn product(
        &mut self,
        seen: &mut Seen,
        judge: &mut impl FnMut(&State<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut target = vec![0; self.units.count()];
        loop {
            self.visit(&target, seen, judge)?;
            let next =
                (0..target.len()).find(|unit| target[*unit] + 1 < self.units.contents(*unit));
            let Some(next) = next else { return ControlFlow::Continue(()) };
            target[..next].fill(0);
            target[next] += 1;
        }
    }

    fn full(&self) -> Vec<u32> {
        (0..self.units.count()).map(|unit| self.units.full(unit)).collect()
    }

    fn none_and_all(&mut self, visit: &mut Visit<'_, Self>) -> ControlFlow<()> {
        visit(self, &vec![0; self.units.count()])?;
        let full = self.full();
        visit(self, &full)
    }

    /// One place, or one sector of a file, deviates from none and from all.
    fn single(&mut self, limit: u64, visit: &mut Visit<'_, Self>) -> ControlFlow<()> {
        let (none, full) = (vec![0; self.units.count()], self.full());
        let mut left = limit;
        for sector in self.sectors() {
            for (others, it) in [(&none, &full), (&full, &none)] {
                if left == 0 {
                    return ControlFlow::Continue(());
                }
                left -= 1;
                let mut target = others.clone();
                target[sector.clone()].copy_from_slice(&it[sector.clone()]);
                visit(self, &target)?;
            }
        }
        for unit in 0..self.units.count() {
            for content in 0..self.units.contents(unit) {
                for others in [&none, &full] {
                    if left == 0 {
                        return ControlFlow::Continue(());
                    }
                    left -= 1;
                    let mut target = others.clone();
                    target[unit] = content;
                    visit(self, &target)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// The runs of units that lie in one sector; units are sorted by place.
    fn sectors(&self) -> Vec<core::ops::Range<usize>> {
        let sector = |unit: usize| match self.units.place(unit) {
            Place::Line(_) => None,
            Place::Word(word) => Some(word / SECTOR_WORDS),
        };
        let mut sectors: Vec<core::ops::Range<usize>> = Vec::new();
        for unit in (0..self.units.count()).filter(|unit| sector(*unit).is_some()) {
            match sectors.last_mut() {
                Some(last) if sector(last.start) == sector(unit) => last.end = unit + 1,
                _ => sectors.push(unit..unit + 1),
            }
        }
        sectors
    }

    /// Two places keep stores, the others none: all pairs if the limit allows, else random ones.
    fn pairs(
        &mut self,
        limit: u64,
        random: &mut Random,
        visit: &mut Visit<'_, Self>,
    ) -> ControlFlow<()> {
        let count = self.units.count();
        let kept: Vec<u64> = (0..count).map(|it| u64::from(self.units.contents(it)) - 1).collect();
        let sum = kept.iter().sum::<u64>();
        let pairs = (sum.saturating_mul(sum) - kept.iter().map(|it| it * it).sum::<u64>()) / 2;
        let mut target = vec![0; count];
        if pairs > limit {
            for _ in 0..limit {
                let first = random.below(count as u64) as usize;
                let second = random.below(count as u64) as usize;
                target[first] = 1 + random.below(kept[first]) as u32;
                target[second] = 1 + random.below(kept[second]) as u32;
                visit(self, &target)?;
                (target[first], target[second]) = (0, 0);
            }
            return ControlFlow::Continue(());
        }
        for (first, second) in (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))) {
            for (one, other) in
                (0..kept[first]).flat_map(|a| (0..kept[second]).map(move |b| (a, b)))
            {
                (target[first], target[second]) = (1 + one as u32, 1 + other as u32);
                visit(self, &target)?;
            }
            (target[first], target[second]) = (0, 0);
        }
        ControlFlow::Continue(())
    }

    /// Each place independently: nothing, everything, or any content, with weights 1, 1, 2.
    fn random(
        &mut self,
        limit: u64,
        random: &mut Random,
        visit: &mut Visit<'_, Self>,
    ) -> ControlFlow<()> {
        for _ in 0..limit {
            let target: Vec<u32> = (0..self.units.count())
                .map(|unit| match random.below(4) {
                    0 => 0,
                    1 => self.units.full(unit),
                    _ => random.below(u64::from(self.units.contents(unit))) as u32,
                })
                .collect();
            visit(self, &target)?;
        }
        ControlFlow::Continue(())
    }

    /// Searches depth-first over the places that the judge accesses; returns whether it completed.
    fn lazily(
        &mut self,
        limit: u64,
        seen: &mut Seen,
        judge: &mut impl FnMut(&State<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<(), bool> {
        let choices = RefCell::new(Vec::new());
        for _ in 0..limit {
            let flow = judge(&State {
                words: self.memory.durable(),
                moment: self.moment,
                units: self.units,
                chosen: &self.chosen,
                lazy: Some(&choices),
            });
            let hash = choices.borrow().iter().fold(self.hash, |hash, choice: &Choice| {
                hash ^ self.units.difference(choice.unit as usize, choice.content)
            });
            self.count.states += u64::from(seen.insert(hash));
            flow?;
            if !next_branch(self.units, &mut choices.borrow_mut()) {
                return ControlFlow::Continue(true);
            }
        }
        ControlFlow::Continue(false)
    }
}

/// Visits one state of a tier.
type Visit<'v, W> = dyn FnMut(&mut W, &[u32]) -> ControlFlow<()> + 'v;

/// Turns the choices of one run into the leading choices of the next; `false` if there is none.
fn next_branch(units: &Units, choices: &mut Vec<Choice>) -> bool {
    while let Some(last) = choices.last_mut() {
        if last.content + 1 < units.contents(last.unit as usize) {
            last.content += 1;
            return true;
        }
        choices.pop();
    }
    false
}
