//! Sorted runs of tables: flushing memtables to them, merging them, and reading over them.
//!
//! [`flush`] writes memtables to runs, [`merge`] keeps runs few, both through [`output`]; [`read`] looks
//! up and walks, [`many`] looks many keys up at once, [`estimate`] reckons without reading; [`shadow`]
//! estimates what fresh tables overwrite. Reads go over all that a View shows: runs, a frozen part,
//! partitions. This room knows the engine and its parts; it never knows when data is settled.

pub mod estimate;
pub mod flush;
pub mod many;
pub mod merge;
pub mod output;
pub mod read;
pub mod shadow;
