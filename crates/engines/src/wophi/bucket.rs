//! One bucket, as it is met on a walk along a chain: checked before anything in it is believed.

use core::marker::PhantomData;

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, Block, LINE, Media, Site, Span};

use super::form::Form;
use super::layout::{self, Kind, LINE_WORDS, NEXT, TOKEN, Token};

/// The first line of a bucket, and the contents of its token word when it was met.
pub struct Bucket<'a, M: Media + 'a, F: Form> {
    /// Where it begins.
    pub at: Addr,
    /// Whether it is addressed or chained.
    pub kind: Kind,
    /// What its token word said.
    pub token: Token,
    head: M::Block<'a, LINE_WORDS>,
    form: PhantomData<fn() -> F>,
}

impl<M: Media, F: Form> Clone for Bucket<'_, M, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Media, F: Form> Copy for Bucket<'_, M, F> {}

impl<'a, M: Media, F: Form> Bucket<'a, M, F> {
    /// Meets the bucket at `at`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the token word does not match its check.
    #[inline(always)]
    pub fn meet(pm: &'a Access<'_, M>, at: Addr, kind: Kind) -> Result<Self> {
        let head = pm.block::<LINE_WORDS>(at)?;
        match Token::open(head.load(TOKEN), at, kind, F::SLOTS) {
            Some(token) => Ok(Bucket { at, kind, token, head, form: PhantomData }),
            None => Err(corrupt(at, "a token word matches its check")),
        }
    }

    /// Makes a bucket of whatever lies at `at`: an empty one with `token`, once it is committed.
    ///
    /// Nothing leads to it yet. Its link is set to none; nothing is flushed.
    pub fn fresh(pm: &'a Access<'_, M>, at: Addr, kind: Kind, token: Token) -> Result<Self> {
        let head = pm.block::<LINE_WORDS>(at)?;
        let bucket: Self = Bucket { at, kind, token, head, form: PhantomData };
        bucket.head.store(NEXT, layout::seal_link(Addr::NULL, bucket.link_at()));
        Ok(bucket)
    }

    /// Returns the words of the first line.
    #[inline(always)]
    pub fn head(&self) -> &M::Block<'a, LINE_WORDS> {
        &self.head
    }

    /// Meets the bucket at `at`; `None` if it is out of bounds or damaged.
    #[inline(always)]
    pub fn glance(pm: &'a Access<'_, M>, at: Addr, kind: Kind) -> Option<Self> {
        let head = pm.block::<LINE_WORDS>(at).ok()?;
        let token = Token::open(head.load(TOKEN), at, kind, F::SLOTS)?;
        Some(Bucket { at, kind, token, head, form: PhantomData })
    }

    /// Returns whether the chain surely ends here.
    #[inline(always)]
    pub fn is_last(&self) -> bool {
        self.head.load(NEXT) == layout::seal_link(Addr::NULL, self.link_at())
    }

    /// Returns where the next bucket of the chain begins.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the link does not match its check.
    #[inline(always)]
    pub fn next(&self) -> Result<Option<Addr>> {
        match layout::open_link(self.head.load(NEXT), self.link_at()) {
            Some(next) => Ok((!next.is_null()).then_some(next)),
            None => Err(corrupt(self.link_at(), "a link matches its check")),
        }
    }

    /// Stores another link: the commit word of what hangs behind it.
    pub fn commit_next(&self, next: Addr, site: Site) {
        self.head.commit_word(NEXT, layout::seal_link(next, self.link_at()), site);
    }

    /// Stores another link into a bucket that nothing leads to yet.
    pub fn store_next(&self, next: Addr) {
        self.head.store(NEXT, layout::seal_link(next, self.link_at()));
    }

    /// Stores another token word: the commit word of the slots.
    #[inline(always)]
    pub fn commit_token(&self, token: Token, site: Site) {
        self.head.commit_word(TOKEN, token.seal(self.at, self.kind), site);
    }

    /// Stores the token word of a bucket that nothing leads to yet.
    pub fn store_token(&self, token: Token) {
        self.head.store(TOKEN, token.seal(self.at, self.kind));
    }

    /// Begins the write-back of the first line.
    #[inline(always)]
    pub fn flush(&self, pm: &Access<'_, M>, site: Site) {
        pm.flush(self.line(0), site);
    }

    /// Returns line `line` of the bucket.
    #[inline(always)]
    pub fn line(&self, line: u64) -> Span {
        Span::new(self.at.plus(line * LINE_WORDS as u64), LINE_WORDS as u64)
    }

    #[inline(always)]
    fn link_at(&self) -> Addr {
        self.at.plus(NEXT as u64)
    }
}

/// Meets a chained bucket that must belong to main bucket `owner`.
///
/// # Errors
/// [`Error::Corrupt`] if it does not.
#[inline]
pub fn meet_chained<'a, M: Media, F: Form>(
    pm: &'a Access<'_, M>,
    at: Addr,
    owner: u64,
) -> Result<Bucket<'a, M, F>> {
    let bucket = Bucket::meet(pm, at, Kind::Chained)?;
    if bucket.token.home() != owner {
        return Err(corrupt(at, "a chained bucket belongs to the chain that it hangs in"));
    }
    Ok(bucket)
}

/// Makes the error of a broken invariant at `at`.
#[cold]
pub fn corrupt(at: Addr, broken: &'static str) -> Error {
    Error::Corrupt { at: at.byte(), broken }
}

const _: () = assert!(LINE as usize == LINE_WORDS * 8);
