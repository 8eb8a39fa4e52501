//! Sorted runs of tables: flushing memtables to them, merging them, and reading over them; and the store
//! that keeps them in levels.
//!
//! [`flush`] writes memtables to runs, [`merge`] keeps runs few ([`neighbours`] says which become one), both through [`output`]; [`read`] looks
//! up and walks, [`many`] looks many keys up at once, [`paying`] counts what reads took more than of settled data, [`estimate`] reckons
//! without reading; [`shadow`]
//! estimates what fresh tables overwrite, [`garbage`] which value segments are mostly dead, [`generation`]
//! which filter over many runs their keys go to, [`restore`] fills one for runs that an open found. Reads go over all that a View shows: runs, levels, a
//! frozen part, partitions; [`unread`] says where walks end before what could not be opened.
//!
//! In a keyspace of [`crate::options::Store::Lsm`] runs sink into levels: [`levels`] says how large each
//! should be, [`pick`] what is compacted next ([`outlook`]: by what, [`goals`]: whose turn it is), [`compact`] does it, [`compact_job`] several at once, [`thin`] says what a
//! full disk gets back table by table, and [`tend`] answers requests and says how hard pressed a keyspace is. This room knows the engine and its parts; it
//! never knows when data is settled.

mod compact;
mod compact_job;
pub mod estimate;
pub mod flush;
pub mod garbage;
mod generation;
mod goals;
mod group;
pub mod levels;
pub mod many;
pub mod merge;
mod neighbours;
mod outlook;
pub mod output;
pub mod paying;
mod pick;
pub mod read;
pub mod restore;
mod rows;
pub mod shadow;
pub mod spill;
mod tend;
#[cfg(test)]
mod tests;
pub mod thin;
pub mod unread;

pub use tend::{is_busy, spawn_if_wanted};
