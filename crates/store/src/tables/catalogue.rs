//! The catalogue: which tables there are, in records of the database itself.
//!
//! A page is one record that lists up to 32 tables, and each table has a flag, a record of its own:
//! it is there while both are. Making a table puts its flag and then the page; dropping one removes
//! the flag, for which there is room on a full disk, too. A crash leaves either done or not done.
//! The header says which numbers and pages may be in use; it is synced before the first of them is.
//! So no number is given twice, whatever power loss takes back: a new table never finds pairs of an
//! old one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everhash_index::{Error, Result, Table};

use super::Count;
use super::prefix;

/// How many tables a page lists. Source: ours; a page of long names is 8 KiB then.
const PAGE_TABLES: usize = 32;

/// How many numbers are reserved by one sync. Source: ours; a sync takes some milliseconds.
const NUMBERS: u64 = 1024;

/// In how large steps pages are reserved: as many as these numbers need.
const PAGES: u64 = NUMBERS / PAGE_TABLES as u64;

/// The most pages there may be. Source: ours; 32 million tables.
const MAX_PAGES: u64 = 1 << 20;

/// The most tables there may be.
const MAX_TABLES: u64 = MAX_PAGES * PAGE_TABLES as u64;

/// The third word of the header. Source: ours; 1 would be catalogues without flags, whose header
/// had two words.
const FORMAT: u64 = 2;

/// The longest name of a table. Unit: bytes. Source: ours; its length is one byte.
pub(crate) const MAX_NAME_BYTES: usize = 255;

/// A table, as its handles see it.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) name: Box<str>,
    pub(crate) number: u64,
    /// The open database that it belongs to.
    pub(crate) database: u64,
    page: usize,
    dropped: AtomicBool,
    /// How many pairs it has.
    pub(crate) count: Count,
}

/// The tables of an open database.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    /// Numbers that were reserved and not given.
    numbers: Range<u64>,
    reserved_pages: u64,
    pages: Vec<Vec<Entry>>,
    names: BTreeMap<Box<str>, Arc<Space>>,
    /// How many of them have pairs with expiry times.
    ending_count: usize,
    /// Pages before this one are full.
    roomy: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    number: u64,
    /// `None`: it was dropped, and some of its pairs may be there.
    table: Option<Arc<Space>>,
}

impl Entry {
    /// Returns whether its number can be one of those below `end`.
    fn is_below(&self, end: u64) -> bool {
        (prefix::FIRST..end).contains(&(self.number & !prefix::ENDING))
    }

    /// Returns whether it is of a dropped table whose number is one of `numbers`, which are sorted.
    fn is_dropped_one_of(&self, numbers: &[u64]) -> bool {
        self.table.is_none() && numbers.binary_search(&self.number).is_ok()
    }
}

/// A record that is to be put.
pub(crate) type Record = (Vec<u8>, Vec<u8>);

/// What the header says beside [`FORMAT`]: numbers and pages that are in use, or were given, lie
/// below these.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reservation {
    numbers: u64,
    pages: u64,
}

impl Reservation {
    /// Returns the header.
    pub(crate) fn header(&self) -> Record {
        (header_key(), [self.numbers, self.pages, FORMAT].map(u64::to_le_bytes).concat())
    }

    /// Reads the header of a file, if it has one.
    fn of(table: &dyn Table) -> Result<Option<Reservation>> {
        let mut record = Vec::new();
        if !table.get(&header_key(), &mut record)? {
            return Ok(None);
        }
        Reservation::parse(&record).map(Some)
    }

    fn parse(record: &[u8]) -> Result<Reservation> {
        let (words, []) = record.as_chunks() else { return Err(DAMAGED) };
        let words: Vec<_> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        match words[..] {
            [_, _] => {
                let what = "a catalogue of tables that an earlier version of this program wrote; \
                            export the pairs with that one, and import them with this one";
                Err(Error::Unsupported { what: what.into() })
            }
            [numbers, pages, FORMAT]
                if (prefix::FIRST..=prefix::END).contains(&numbers) && pages <= MAX_PAGES =>
            {
                Ok(Reservation { numbers, pages })
            }
            _ => Err(DAMAGED),
        }
    }
}

impl Space {
    fn new(name: &str, number: u64, database: u64, page: usize) -> Space {
        let (dropped, count) = (AtomicBool::new(false), Count::default());
        Space { name: name.into(), number, database, page, dropped, count }
    }

    /// Returns whether the table was dropped.
    #[inline]
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Returns whether its pairs have expiry times.
    #[inline]
    pub(crate) fn ends(&self) -> bool {
        prefix::ends(self.number)
    }
}

impl Catalogue {
    /// Reads the catalogue; `database` names the open database.
    pub(crate) fn load(table: &dyn Table, database: u64) -> Result<Catalogue> {
        let none = Reservation { numbers: prefix::FIRST, pages: 0 };
        let Reservation { numbers, pages } = Reservation::of(table)?.unwrap_or(none);
        let mut catalogue = Catalogue { reserved_pages: pages, ..Catalogue::default() };
        catalogue.numbers = numbers..numbers;
        let mut record = Vec::new();
        for page in 0..pages as usize {
            record.clear();
            let found = table.get(&page_key(page), &mut record)?;
            let mut entries = if found { parse(&record, page, database)? } else { Vec::new() };
            // A number beyond those that were reserved would be given to another table as well.
            if !entries.iter().all(|entry| entry.is_below(numbers)) {
                return Err(DAMAGED);
            }
            for entry in entries.iter_mut().filter(|entry| entry.table.is_some()) {
                if !table.contains(&flag_key(entry.number))? {
                    entry.table = None;
                }
            }
            catalogue.pages.push(entries);
        }
        for entry in catalogue.pages.iter().flatten() {
            if let Some(space) = &entry.table {
                catalogue.names.insert(space.name.clone(), Arc::clone(space));
            }
        }
        catalogue.ending_count = catalogue.spaces().filter(|space| space.ends()).count();
        Ok(catalogue)
    }

    /// Returns whether a table was ever made.
    pub(crate) fn was_used(&self) -> bool {
        self.reserved_pages > 0
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Space>> {
        self.names.get(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(AsRef::as_ref)
    }

    pub(crate) fn spaces(&self) -> impl Iterator<Item = &Arc<Space>> {
        self.names.values()
    }

    /// Returns the numbers of dropped tables.
    pub(crate) fn dropped(&self) -> Vec<u64> {
        let entries = self.pages.iter().flatten().filter(|entry| entry.table.is_none());
        entries.map(|entry| entry.number).collect()
    }

    /// Returns what must be reserved before a table can be made, if anything: its header must be
    /// put and synced.
    pub(crate) fn reservation(&mut self) -> Result<Option<Reservation>> {
        let full = |page: &Vec<Entry>| page.len() >= PAGE_TABLES;
        self.roomy += self.pages[self.roomy..].iter().take_while(|page| full(page)).count();
        let lacks_numbers = self.numbers.is_empty();
        if !lacks_numbers && (self.roomy as u64) < self.reserved_pages {
            return Ok(None);
        }
        // After an open there are no numbers, and pages enough. As many pages stay reserved as are
        // in use, with one that has room: a program before reserved more at each open.
        let used = self.pages.iter().rposition(|page| !page.is_empty()).map_or(0, |last| last + 1);
        let pages = (used.max(self.roomy + 1) as u64).next_multiple_of(PAGES);
        let numbers = self.numbers.end + if lacks_numbers { NUMBERS } else { 0 };
        if numbers > prefix::END {
            let remedy = "copy the tables that are left to a new database";
            let name = "tables, dropped ones counted";
            return Err(Error::Limit { name, limit: prefix::END, remedy });
        }
        if pages > MAX_PAGES {
            let remedy = "drop some, or make the others in another database";
            return Err(Error::Limit { name: "tables", limit: MAX_TABLES, remedy });
        }
        Ok(Some(Reservation { numbers, pages }))
    }

    /// Notes that the header of a reservation is durable.
    pub(crate) fn reserved(&mut self, reservation: &Reservation) {
        self.numbers.end = reservation.numbers;
        self.reserved_pages = reservation.pages;
    }

    /// Returns whether there is a table whose pairs have expiry times.
    pub(crate) fn has_ending(&self) -> bool {
        self.ending_count > 0
    }

    /// Prepares a new table, whose pairs have expiry times or not, and returns it with the page
    /// that lists it.
    pub(crate) fn prepare(
        &mut self,
        name: &str,
        database: u64,
        ends: bool,
    ) -> (Arc<Space>, Record) {
        let number = self.numbers.next().expect("a number was reserved");
        let number = if ends { number | prefix::ENDING } else { number };
        let page = self.roomy;
        if page == self.pages.len() {
            self.pages.push(Vec::new());
        }
        let space = Arc::new(Space::new(name, number, database, page));
        let mut entries = self.pages[page].clone();
        entries.push(Entry { number, table: Some(Arc::clone(&space)) });
        (space, (page_key(page), print(&entries)))
    }

    /// Notes that the flag of a new table and its page were put.
    pub(crate) fn made(&mut self, space: &Arc<Space>) {
        let entry = Entry { number: space.number, table: Some(Arc::clone(space)) };
        self.pages[space.page].push(entry);
        self.names.insert(space.name.clone(), Arc::clone(space));
        self.ending_count += usize::from(space.ends());
    }

    /// Notes that the flag of a table was removed.
    pub(crate) fn was_dropped(&mut self, space: &Space) {
        for entry in &mut self.pages[space.page] {
            if entry.number == space.number {
                entry.table = None;
            }
        }
        self.names.remove(&space.name);
        self.ending_count -= usize::from(space.ends());
        space.dropped.store(true, Ordering::Release);
    }

    /// Returns the pages that list dropped tables of `numbers`, which are sorted, each with the
    /// record that says nothing any more of them.
    pub(crate) fn without_dropped(&self, numbers: &[u64]) -> Vec<(usize, Record)> {
        let lists_one = |(_, entries): &(usize, &Vec<Entry>)| {
            entries.iter().any(|entry| entry.is_dropped_one_of(numbers))
        };
        let record = |(page, entries): (usize, &Vec<Entry>)| {
            let kept = entries.iter().filter(|entry| !entry.is_dropped_one_of(numbers));
            (page, (page_key(page), print(&kept.cloned().collect::<Vec<_>>())))
        };
        self.pages.iter().enumerate().filter(lists_one).map(record).collect()
    }

    /// Notes that such a record of a page was put.
    pub(crate) fn forget(&mut self, page: usize, numbers: &[u64]) {
        self.pages[page].retain(|entry| !entry.is_dropped_one_of(numbers));
        self.roomy = self.roomy.min(page);
    }
}

/// What records of a file say of its tables, when its header and flags may be lost or old ones.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    /// Numbers and pages that are in use lie below these.
    seen: Reservation,
    /// The numbers of the tables that pages list by their names.
    named: Vec<u64>,
}

impl Traces {
    /// Notes a pair as it lies in the file.
    ///
    /// # Errors
    /// If it is a record of the catalogue that no open would take.
    pub(crate) fn note(&mut self, stored: &[u8], value: &[u8]) -> Result<()> {
        match prefix::split(stored) {
            Some((number, _)) if number >= prefix::FIRST => self.number(number),
            Some((prefix::CATALOGUE, [])) => drop(Reservation::parse(value)?),
            Some((prefix::CATALOGUE, behind)) => match flagged(behind) {
                Some(number) => self.number(number),
                None => self.page(behind, value)?,
            },
            _ => {}
        }
        Ok(())
    }

    fn page(&mut self, page: &[u8], value: &[u8]) -> Result<()> {
        let page = page.try_into().map(u64::from_be_bytes).map_err(|_| DAMAGED)?;
        let entries = parse(value, page as usize, 0)?;
        if page >= MAX_PAGES || !entries.iter().all(|it| it.is_below(prefix::END)) {
            return Err(DAMAGED);
        }
        self.seen.pages = self.seen.pages.max(page + 1);
        for entry in entries {
            self.number(entry.number);
            self.named.extend(entry.table.map(|space| space.number));
        }
        Ok(())
    }

    fn number(&mut self, number: u64) {
        self.seen.numbers = self.seen.numbers.max((number & !prefix::ENDING) + 1);
    }

    /// Returns the records that a file with these lacks: its header, and the flags of tables that
    /// it lists. A table that was dropped, and is listed until its pairs are gone, gets one, too.
    pub(crate) fn missing(&self, table: &dyn Table) -> Result<Vec<Record>> {
        let mut missing = Vec::new();
        if self.seen == Reservation::default() {
            return Ok(missing);
        }
        let found = Reservation::of(table)?.unwrap_or_default();
        let needed = Reservation {
            numbers: found.numbers.max(self.seen.numbers).max(prefix::FIRST),
            // One at least: it says that there were tables.
            pages: found.pages.max(self.seen.pages.next_multiple_of(PAGES)).max(PAGES),
        };
        if needed != found {
            missing.push(needed.header());
        }
        for number in &self.named {
            if !table.contains(&flag_key(*number))? {
                missing.push(flag(*number));
            }
        }
        Ok(missing)
    }
}

const DAMAGED: Error =
    Error::Corrupt { at: 0, broken: "the catalogue of tables is one that this program wrote" };

fn header_key() -> Vec<u8> {
    prefix::of(prefix::CATALOGUE).to_vec()
}

fn page_key(page: usize) -> Vec<u8> {
    [prefix::of(prefix::CATALOGUE), (page as u64).to_be_bytes()].concat()
}

/// Returns the key of a table's flag: its prefix, behind that of the catalogue. No page has such a
/// number.
pub(crate) fn flag_key(number: u64) -> Vec<u8> {
    prefix::joined(prefix::CATALOGUE, &prefix::of(number))
}

/// Returns the number of the table of a flag, by what lies behind the catalogue's prefix.
fn flagged(behind: &[u8]) -> Option<u64> {
    let (number, rest) = prefix::split(behind)?;
    (number >= prefix::FIRST && rest.is_empty()).then_some(number)
}

/// Returns the flag of a table.
pub(crate) fn flag(number: u64) -> Record {
    (flag_key(number), Vec::new())
}

/// A table is its number, the length of its name, and its name; a dropped one has none.
fn print(entries: &[Entry]) -> Vec<u8> {
    let mut record = Vec::new();
    for entry in entries {
        let name = entry.table.as_ref().map_or("", |space| &*space.name);
        record.extend_from_slice(&entry.number.to_le_bytes());
        record.push(u8::try_from(name.len()).expect("a name was admitted"));
        record.extend_from_slice(name.as_bytes());
    }
    record
}

fn parse(record: &[u8], page: usize, database: u64) -> Result<Vec<Entry>> {
    let (mut rest, mut entries) = (record, Vec::new());
    while let Some((number, behind)) = rest.split_first_chunk() {
        let (bytes, behind) = behind.split_first().ok_or(DAMAGED)?;
        let (name, behind) = behind.split_at_checked(usize::from(*bytes)).ok_or(DAMAGED)?;
        let name = core::str::from_utf8(name).map_err(|_| DAMAGED)?;
        let number = u64::from_le_bytes(*number);
        let space = Space::new(name, number, database, page);
        entries.push(Entry { number, table: (!name.is_empty()).then(|| Arc::new(space)) });
        rest = behind;
    }
    if rest.is_empty() { Ok(entries) } else { Err(DAMAGED) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_that_can_be_leaves_a_trace() {
        // Fails if a damaged page, or one that was forged, made a salvage reserve pages or numbers
        // that no database has, or end in a panic.
        let seen = |page: u64, list: &[u8]| {
            let mut traces = Traces::default();
            traces.note(&page_key(page as usize), list).is_ok().then_some(traces.seen)
        };
        for page in [MAX_PAGES, MAX_PAGES + 1, u64::MAX] {
            assert_eq!(seen(page, b""), None, "{page}");
        }
        for number in [1, prefix::FIRST - 1, prefix::END << 1, u64::MAX] {
            let entry = [&number.to_le_bytes()[..], &[1], b"a"].concat();
            assert_eq!(seen(0, &entry), None, "{number}");
        }
        let last = Reservation { numbers: 0, pages: MAX_PAGES };
        assert_eq!(seen(MAX_PAGES - 1, b""), Some(last));
        // The kind of a table is no part of its number.
        let ending = [&(prefix::ENDING | 20).to_le_bytes()[..], &[1], b"a"].concat();
        assert_eq!(seen(0, &ending), Some(Reservation { numbers: 21, pages: 1 }));
    }

    #[test]
    fn the_last_page_is_taken_and_no_further_one() {
        // Fails if there were a page behind the last one, with which no open takes the header.
        let numbers = prefix::FIRST..prefix::FIRST + 1;
        let with_room_in = |roomy| {
            let pages = vec![Vec::new(); MAX_PAGES as usize];
            Catalogue { numbers: numbers.clone(), pages, roomy, ..Catalogue::default() }
        };
        let last = Reservation { numbers: numbers.end, pages: MAX_PAGES };
        let reserved = with_room_in(MAX_PAGES as usize - 1).reservation().unwrap();
        assert_eq!(reserved, Some(last));
        let full = with_room_in(MAX_PAGES as usize).reservation();
        let Err(Error::Limit { name, limit, .. }) = full else { panic!("{full:?}") };
        assert_eq!((name, limit), ("tables", MAX_TABLES));
    }

    #[test]
    fn a_header_that_says_more_than_its_records_stays() {
        // Fails if a salvage gave numbers or pages back that the database had given: those of
        // tables of which nothing was seen.
        let directory = tempfile::tempdir().unwrap();
        let db = crate::Db::create(directory.path().join("pairs.ehdb")).unwrap();
        let (key, header) = Reservation { numbers: 5000, pages: 2 * PAGES }.header();
        db.core().write_own(|_| Ok(()), |table| table.put(&key, &header)).unwrap();
        let mut traces = Traces::default();
        traces.note(&prefix::joined(20, b"key"), b"value").unwrap();
        assert_eq!(db.core().read(|table| traces.missing(table)).unwrap(), []);
    }

    #[test]
    fn pairs_of_a_table_of_which_no_page_is_left_say_that_there_were_tables() {
        // Fails if a salvage made a file that says that no table was ever made: the pairs would
        // count as those of the default table.
        let directory = tempfile::tempdir().unwrap();
        let db = crate::Db::create(directory.path().join("pairs.ehdb")).unwrap();
        let mut traces = Traces::default();
        let missing = |traces: &Traces| db.core().read(|table| traces.missing(table));
        traces.note(b"key", b"value").unwrap();
        assert_eq!(missing(&traces).unwrap(), []);
        traces.note(&prefix::joined(20, b"key"), b"value").unwrap();
        let needed = Reservation { numbers: 21, pages: PAGES };
        assert_eq!(missing(&traces).unwrap(), [needed.header()]);
        // A page that lists nothing says no more than that.
        let mut traces = Traces::default();
        traces.note(&page_key(0), b"").unwrap();
        let needed = Reservation { numbers: prefix::FIRST, pages: PAGES };
        assert_eq!(missing(&traces).unwrap(), [needed.header()]);
    }

    #[test]
    fn a_flag_says_that_its_number_was_given() {
        // Fails if a salvage in which a table left its flag and nothing else gave its number again,
        // or took the flag for a page.
        let mut traces = Traces::default();
        traces.note(&flag_key(prefix::ENDING | 20), b"").unwrap();
        assert_eq!(traces.seen, Reservation { numbers: 21, pages: 0 });
        assert!(traces.note(&flag_key(prefix::FIRST - 1), b"").is_err());
    }
}
