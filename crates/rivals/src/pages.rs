//! The medium under a table: reading slots, and writing them in an order that survives a crash.

use everhash_pmem::{Addr, LINE, Media, Region, Result, Span, StreamClass, WORD};

use crate::buckets::{ALL_TOKENS, Bucket, Buckets, LOG_PAGES, PAGE_BYTES, Slot};

mod sites {
    everhash_pmem::sites! {
        /// A record of the log.
        LOG = "rivals/write/log";
        /// A bucket with a slot that changed.
        BUCKET = "rivals/write/bucket";
        /// A pair, before its token.
        PAIR = "rivals/write/pair";
        /// The tokens of a bucket.
        TOKENS = "rivals/write/tokens";
        /// An empty table.
        EMPTY = "rivals/format/pages";
    }
}

/// In which order a write becomes durable. Each flush below is a page written to flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// As cheap as it can be on pages, which is what Tiered Hashing has (3.6): a page becomes
    /// durable as it is at one moment, so that a pair and its token share one flush, and an eight
    /// byte value changes in place. A move flushes its destination, and its source only because
    /// another pair is written there.
    OneFlush,
    /// For schemes without a consistency of their own, as Tiered Hashing has it in 2.4 and Fig. 3:
    /// a log record is flushed before each write, and a move flushes log, destination and source.
    Logged,
    /// That of Level Hashing (OSDI 2018, 3.3): no log, but the pair is flushed before its token,
    /// and a move flushes the source's token, too. Only a value that is written in place is logged.
    TokenLast,
}

/// A medium and the order of writes on it.
pub struct Pages<M: Media> {
    region: Region<M>,
    order: Order,
    /// Records written to the log, which goes round.
    logged: u64,
}

impl<M: Media> Pages<M> {
    pub fn new(region: Region<M>, order: Order) -> Self {
        Pages { region, order, logged: 0 }
    }

    pub fn order(&self) -> Order {
        self.order
    }

    /// Makes buckets empty. Every page is written, so that the device has it in use from then on.
    pub fn format(&self, buckets: &Buckets) -> Result<()> {
        self.region.media().grow(buckets.span().end_byte())?;
        let pm = self.region.access();
        for bucket in buckets.all() {
            pm.store(bucket.tokens(), 0)?;
        }
        pm.sync(sites::EMPTY)
    }

    /// Announces a row of buckets as one stream.
    pub fn stream(&self, buckets: &Buckets, class: u8) {
        self.region.access().stream(buckets.span(), StreamClass(class));
    }

    /// Returns the tokens of a bucket, and what a scheme has above them.
    pub fn tokens(&self, bucket: Bucket) -> Result<u64> {
        self.region.access().load(bucket.tokens())
    }

    /// Returns the pair in a slot whose token is set.
    pub fn pair(&self, slot: Slot) -> Result<(u64, u64)> {
        let pm = self.region.access();
        Ok((pm.load(slot.key())?, pm.load(slot.value())?))
    }

    /// Looks for a key among the slots of a bucket whose `tokens` are set.
    pub fn find_among(&self, bucket: Bucket, tokens: u64, key: u64) -> Result<Option<(Slot, u64)>> {
        let pm = self.region.access();
        for slot in bucket.slots(tokens) {
            if pm.load(slot.key())? == key {
                return Ok(Some((slot, pm.load(slot.value())?)));
            }
        }
        Ok(None)
    }

    /// Looks for a key in some buckets, one after the other.
    pub fn find(&self, buckets: &[Bucket], key: u64) -> Result<Option<(Slot, u64)>> {
        for bucket in buckets {
            let found = self.find_among(*bucket, self.tokens(*bucket)?, key)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Returns the first slot of a bucket without a pair.
    pub fn free(&self, bucket: Bucket) -> Result<Option<Slot>> {
        let open = !self.tokens(bucket)? & ALL_TOKENS;
        Ok(bucket.slots(open).next())
    }

    /// Gives a pair a slot that is free. A crash leaves the slot free or with the pair.
    pub fn insert(&mut self, slot: Slot, pair: (u64, u64)) -> Result<()> {
        if self.order == Order::Logged {
            self.log(slot, pair)?;
        }
        self.place(slot, pair)
    }

    /// Copies a pair to a slot that is free, after which its source is free for
    /// [`Pages::insert`]. A crash leaves the pair in one of them or in both.
    pub fn shift(&mut self, source: Slot, target: Slot) -> Result<()> {
        let pair = self.pair(source)?;
        self.insert(target, pair)?;
        match self.order {
            Order::OneFlush => Ok(()),
            Order::Logged | Order::TokenLast => self.remove(source, 0),
        }
    }

    /// Takes a pair away and sets the bits `marks` above the tokens. A crash leaves it there or
    /// not.
    pub fn remove(&mut self, slot: Slot, marks: u64) -> Result<()> {
        let tokens = self.tokens(slot.bucket)? & !slot.token();
        self.write_tokens(slot.bucket, tokens | marks)
    }

    /// Gives a pair another value. A crash leaves the old or the new one.
    pub fn update(&mut self, slot: Slot, value: u64) -> Result<()> {
        let pm = self.region.access();
        if self.order != Order::OneFlush {
            let key = pm.load(slot.key())?;
            self.log(slot, (key, value))?;
        }
        let pm = self.region.access();
        pm.store(slot.value(), value)?;
        pm.persist(slot.bucket.span(), sites::BUCKET)
    }

    /// Gives a pair another value in a free slot of its bucket: both tokens change in one store.
    pub fn renew(&mut self, source: Slot, target: Slot, pair: (u64, u64)) -> Result<()> {
        self.write_pair(target, pair)?;
        self.region.access().persist(target.bucket.span(), sites::PAIR)?;
        let tokens = self.tokens(source.bucket)? & !source.token();
        self.write_tokens(source.bucket, tokens | target.token())
    }

    fn place(&mut self, slot: Slot, pair: (u64, u64)) -> Result<()> {
        let tokens = self.tokens(slot.bucket)?;
        if tokens & slot.token() != 0 {
            // The source of a move that was not flushed. Its page is written as it is at one
            // moment: with the old pair, with none, or with the new one.
            self.region.access().store(slot.bucket.tokens(), tokens & !slot.token())?;
        }
        self.write_pair(slot, pair)?;
        if self.order == Order::TokenLast {
            self.region.access().persist(slot.bucket.span(), sites::PAIR)?;
        }
        self.write_tokens(slot.bucket, tokens | slot.token())
    }

    fn write_pair(&self, slot: Slot, (key, value): (u64, u64)) -> Result<()> {
        let pm = self.region.access();
        pm.store(slot.key(), key)?;
        pm.store(slot.value(), value)
    }

    fn write_tokens(&self, bucket: Bucket, tokens: u64) -> Result<()> {
        let pm = self.region.access();
        pm.commit_word(bucket.tokens(), tokens, sites::TOKENS)?;
        pm.persist(bucket.span(), sites::TOKENS)
    }

    /// Appends a record of a line: what will be written, and where.
    fn log(&mut self, slot: Slot, (key, value): (u64, u64)) -> Result<()> {
        let records = LOG_PAGES * PAGE_BYTES / LINE;
        let at = Addr::new(PAGE_BYTES + self.logged % records * LINE);
        self.logged += 1;
        let pm = self.region.access();
        pm.write_words(at, &[self.logged, slot.key().byte(), key, value])?;
        pm.persist(Span::new(at, LINE / WORD), sites::LOG)
    }
}
