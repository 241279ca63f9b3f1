//! RocksDB, behind the feature `rocksdb`: it is C++ and takes a quarter of an hour to build.

use std::path::Path;

use anyhow::Result;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Options, ReadOptions, WriteBatch, WriteOptions,
};

use crate::data::Shape;
use crate::store::{Durability, Pair, Reader, Setup, Store};

/// How the store is set up.
pub const SETTINGS: &str = "WAL; block cache of the run's size, filters of 10 bits a key, no \
                            compression, three memtables of 64 MiB, 2 background jobs; values of \
                            4 KiB and more in blob files; immediate: synced writes";

/// Bytes of one memtable.
///
/// Source: RocksDB's default.
const MEMTABLE_BYTES: usize = 64 << 20;

/// Values of this length and above go to blob files. Unit: bytes.
///
/// Source: RocksDB's documentation of BlobDB recommends it for large values; ours where they begin.
const BLOB_BYTES: usize = 4096;

/// Bits of a filter for each key.
///
/// Source: RocksDB's tuning guide: about 1 % of absent keys pass.
const FILTER_BITS: f64 = 10.0;

struct RocksDb {
    db: DB,
    write: WriteOptions,
}

/// Opens the store.
pub fn open(_: &str, path: &Path, setup: &Setup) -> Result<Box<dyn Store>> {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(setup.cache_bytes as usize));
    blocks.set_bloom_filter(FILTER_BITS, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&blocks);
    options.set_compression_type(DBCompressionType::None);
    options.set_write_buffer_size(MEMTABLE_BYTES);
    options.set_max_write_buffer_number(3);
    options.increase_parallelism(2);
    let Shape { value_bytes, .. } = setup.shape;
    options.set_enable_blob_files(value_bytes >= BLOB_BYTES);
    options.set_enable_blob_gc(value_bytes >= BLOB_BYTES);
    let mut write = WriteOptions::default();
    write.set_sync(setup.durability == Durability::Immediate);
    Ok(Box::new(RocksDb { db: DB::open(&options, path)?, write }))
}

impl Store for RocksDb {
    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        let mut options = ReadOptions::default();
        options.set_verify_checksums(true);
        Ok(Box::new(Reading { db: &self.db, options }))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put_opt(key, value, &self.write)?)
    }

    fn put_many(&self, pairs: &[Pair]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in pairs {
            batch.put(key, value);
        }
        Ok(self.db.write_opt(batch, &self.write)?)
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        Ok(self.db.delete_opt(key, &self.write)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.db.flush_wal(true)?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Store::sync(&*self)
    }
}

struct Reading<'a> {
    db: &'a DB,
    options: ReadOptions,
}

impl Reader for Reading<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.db.get_pinned_opt(key, &self.options)?;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    fn get_many(
        &mut self,
        keys: &[Vec<u8>],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let values = self.db.multi_get_opt(keys, &self.options);
        for (position, value) in values.into_iter().enumerate() {
            found(position, value?.as_deref());
        }
        Ok(())
    }
}
