//! Learned indexes: sorted `u64` keys in, position bounds out.
//!
//! A learned index replaces the inner nodes of a search tree by a model of the keys' distribution.
//! Asked for a key, it answers with a short range of positions, and *the true lower-bound position
//! (the number of smaller keys) is always inside it*, whether the key is present or not. The kinds
//! here know nothing of files, blocks' contents or threads, and hold no `unsafe`.
//!
//! ```
//! use learned::{Builder, GreedyPlr, GreedyPlrBuilder, Model, Persist};
//!
//! let keys: Vec<u64> = (0..10_000).map(|i| i * i).collect();
//! let mut builder = GreedyPlrBuilder::new(8); // at most 8 positions wrong
//! for &key in &keys {
//!     builder.push(key)?;
//! }
//! let model = builder.finish();
//!
//! // Absent keys have a lower bound too: 1_000_001 would be inserted at position 1_001.
//! let bound = model.bound(1_000_001);
//! assert!(bound.contains(1_001) && bound.width() <= 18);
//! let window = &keys[bound.first as usize..(bound.last as usize).min(keys.len())];
//! assert_eq!(bound.first as usize + window.partition_point(|&k| k < 1_000_001), 1_001);
//!
//! let mut bytes = Vec::new();
//! model.encode(&mut bytes);
//! assert_eq!(GreedyPlr::decode(&bytes)?, model);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod bound;
pub mod bytes;
mod error;
pub mod exact;
mod greedy_plr;
mod greedy_plr_plus;
mod model;
pub mod monotone;
mod plr;

pub use bound::Bound;
pub use error::{BuildError, DecodeError, Found};
pub use greedy_plr::{GreedyPlr, GreedyPlrBuilder};
pub use greedy_plr_plus::{GreedyPlrPlus, GreedyPlrPlusBuilder};
pub use model::{BlockBuilder, BlockModel, Builder, Model, Persist};
