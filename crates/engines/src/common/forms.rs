//! One table for all forms of pairs: an enum of the tables of each form, and what it hands on.

/// Implements `Table` for an enum of tables, one variant for each form, by handing every call on.
/// The form `Words` is the one with the word interface.
macro_rules! table_of_forms {
    ($table:ident: $($form:ident),+) => {
        impl<M: everhash_pmem::Media> $table<M> {
            fn as_table(&self) -> &dyn everhash_index::Table {
                match self {
                    $( $table::$form(table) => table, )+
                }
            }
        }

        impl<M: everhash_pmem::Media> everhash_index::Table for $table<M> {
            fn form(&self) -> everhash_index::Form {
                self.as_table().form()
            }

            fn insert(&self, key: &[u8], value: &[u8]) -> everhash_index::Result<bool> {
                self.as_table().insert(key, value)
            }

            fn put(&self, key: &[u8], value: &[u8]) -> everhash_index::Result<bool> {
                self.as_table().put(key, value)
            }

            fn update(&self, key: &[u8], value: &[u8]) -> everhash_index::Result<bool> {
                self.as_table().update(key, value)
            }

            fn modify(
                &self,
                key: &[u8],
                change: &mut dyn FnMut(Option<&[u8]>) -> everhash_index::Change,
            ) -> everhash_index::Result<()> {
                self.as_table().modify(key, change)
            }

            fn get(&self, key: &[u8], value: &mut Vec<u8>) -> everhash_index::Result<bool> {
                self.as_table().get(key, value)
            }

            fn remove(&self, key: &[u8]) -> everhash_index::Result<bool> {
                self.as_table().remove(key)
            }

            fn contains(&self, key: &[u8]) -> everhash_index::Result<bool> {
                self.as_table().contains(key)
            }

            fn get_many(
                &self,
                keys: &[&[u8]],
                found: &mut dyn FnMut(usize, Option<&[u8]>),
            ) -> everhash_index::Result<()> {
                self.as_table().get_many(keys, found)
            }

            fn insert_many(&self, pairs: &[(&[u8], &[u8])]) -> everhash_index::Result<u64> {
                self.as_table().insert_many(pairs)
            }

            fn put_many(&self, pairs: &[(&[u8], &[u8])]) -> everhash_index::Result<u64> {
                self.as_table().put_many(pairs)
            }

            fn remove_many(&self, keys: &[&[u8]]) -> everhash_index::Result<u64> {
                self.as_table().remove_many(keys)
            }

            fn len(&self) -> everhash_index::Result<u64> {
                self.as_table().len()
            }

            fn scan(
                &self,
                cursor: everhash_index::Cursor,
                visit: &mut dyn FnMut(&[u8], &[u8]),
            ) -> everhash_index::Result<Option<everhash_index::Cursor>> {
                self.as_table().scan(cursor, visit)
            }

            fn scan_past(
                &self,
                cursor: everhash_index::Cursor,
            ) -> everhash_index::Result<Option<everhash_index::Cursor>> {
                self.as_table().scan_past(cursor)
            }

            fn clear(&self) -> everhash_index::Result<()> {
                self.as_table().clear()
            }

            fn sync(&self) -> everhash_index::Result<()> {
                self.as_table().sync()
            }

            fn maintain(
                &self,
                now: core::time::Duration,
                budget: u32,
            ) -> everhash_index::Result<everhash_index::Upkeep> {
                self.as_table().maintain(now, budget)
            }

            fn check(&self) -> everhash_index::Result<everhash_index::Checked> {
                self.as_table().check()
            }

            fn durability(&self) -> everhash_index::Durability {
                self.as_table().durability()
            }

            fn durability_partition(&self, key: &[u8]) -> u64 {
                self.as_table().durability_partition(key)
            }

            fn stats(&self) -> everhash_index::Result<everhash_index::Stats> {
                self.as_table().stats()
            }

            fn close(self: Box<Self>) -> everhash_index::Result<()> {
                match *self {
                    $( $table::$form(table) => Box::new(table).close(), )+
                }
            }

            fn words(&self) -> Option<&dyn everhash_index::WordTable> {
                match self {
                    $table::Words(table) => Some(table),
                    _ => None,
                }
            }

            fn bare(&self) -> Option<&dyn everhash_index::BareTable> {
                self.as_table().bare()
            }
        }
    };
}

pub(crate) use table_of_forms;
