//! Workloads, key sets, checks and reports for ordered key-value stores.
//!
//! What is measured here is also checked: values carry their key and version ([`values`]), a table
//! of expected versions knows what every read must return ([`run`]), and one wrong answer makes the
//! whole run fail. An engine is anything behind the [`Engine`](engines::Engine) trait.
//!
//! The rooms, from the ground up: [`random`], [`keys`], [`values`], [`requests`], [`workloads`],
//! [`engines`], [`run`], [`report`], [`process`] (work in a process of its own), [`interrupt`] (what one that is interrupted leaves behind), [`suite`] (a whole run from settings to report), [`oracle`]
//! (the writer and verifier of kill tests), [`figures`] (what `docs/MEASURED.md` is made of),
//! [`compare`] (engines side by side, each in a process of its own), [`args`] (the command line
//! that both binaries share). No room below `engines` knows a particular engine; `figures` is about
//! learnedkv alone.

pub mod args;
pub mod command;
pub mod compare;
pub mod engines;
pub mod error;
pub mod figures;
pub mod interrupt;
pub mod keys;
pub mod oracle;
pub mod process;
pub mod random;
pub mod report;
pub mod requests;
pub mod run;
pub mod sizes;
pub mod suite;
pub mod values;
pub mod workloads;

pub use error::{Error, ErrorKind, Result};
