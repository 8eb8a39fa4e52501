//! Parts of the keyspaces of a View: a tree by number, of which a change copies one branch and one leaf. What jobs look for is known of each
//! part that did not change since it was asked, so that who looks passes over those where it is not.

use std::array;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::KeyspaceView;
use crate::format::entry::SequenceNumber;
use crate::options::Store;
use crate::sstable::reader::Table;

/// So many members a part has at most: of an answer each is a bit.
pub const FAN: usize = 32;

/// What a job asks of each keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Whether something of the tiered store may be to be settled or merged.
    Settles,
    /// Whether that may press writers.
    Presses,
    /// Whether something of levels may be to be compacted.
    Compacts,
    /// Whether that may press writers.
    CompactsPressed,
}

/// So many questions there are.
const QUESTIONS: usize = 4;

/// A question as it is asked: the answer goes by what a keyspace holds, its options, and `by`.
pub struct Asked<'a> {
    /// Which one.
    pub question: Question,
    /// What else the answer goes by.
    pub by: u64,
    /// It.
    pub is_so: &'a dyn Fn(&KeyspaceView) -> bool,
}

/// What is known of keyspaces.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// The number of the oldest record in memtables that wait to be flushed; the highest there is if none does.
    pub oldest_sealed: SequenceNumber,
    /// The highest number up to which one of these goes; 0 if none waits.
    pub sealed_up_to: SequenceNumber,
    /// The most that one keyspace has of them.
    pub most_sealed: usize,
    /// Whether one has tables in runs or in a frozen part.
    pub is_unsettled: bool,
    /// Whether one that keeps levels has.
    pub has_levels: bool,
    /// What of the tiered store is not settled, bytes.
    pub fresh_bytes: u64,
    /// What tables take, with the values they point at, bytes.
    pub table_bytes: u64,
    /// The largest size of partitions, bytes.
    pub partition_bytes: u64,
}

impl Known {
    const NOTHING: Known = Known {
        oldest_sealed: SequenceNumber::MAX,
        sealed_up_to: 0,
        most_sealed: 0,
        is_unsettled: false,
        has_levels: false,
        fresh_bytes: 0,
        table_bytes: 0,
        partition_bytes: 0,
    };

    /// Of these and others.
    fn and(self, other: Known) -> Known {
        Known {
            oldest_sealed: self.oldest_sealed.min(other.oldest_sealed),
            sealed_up_to: self.sealed_up_to.max(other.sealed_up_to),
            most_sealed: self.most_sealed.max(other.most_sealed),
            is_unsettled: self.is_unsettled || other.is_unsettled,
            has_levels: self.has_levels || other.has_levels,
            fresh_bytes: self.fresh_bytes + other.fresh_bytes,
            table_bytes: self.table_bytes + other.table_bytes,
            partition_bytes: self.partition_bytes.max(other.partition_bytes),
        }
    }
}

/// What a part is made of.
pub trait Member: Clone {
    /// What is known of it.
    fn known(&self) -> Known;
    /// Whether the answer is yes for any keyspace of it.
    fn is_any(&self, asked: &Asked<'_>) -> bool;
}

impl Member for Arc<KeyspaceView> {
    fn known(&self) -> Known {
        let (tables, options) = (&self.tables, &self.options);
        let is_unsettled = self.is_unsettled();
        let is_levelled = options.chosen_store() == Store::Lsm;
        let bytes = |table: &Arc<Table>| table.file_bytes() + table.properties().separated_bytes();
        Known {
            oldest_sealed: self.sealed.last().map_or(SequenceNumber::MAX, |s| s.first_sequence()),
            sealed_up_to: self.sealed.first().map_or(0, |newest| newest.up_to),
            most_sealed: self.sealed.len(),
            is_unsettled,
            has_levels: is_unsettled && is_levelled,
            fresh_bytes: if is_unsettled && !is_levelled { tables.fresh_bytes() } else { 0 },
            table_bytes: tables.all().map(bytes).sum(),
            partition_bytes: options.partition(),
        }
    }

    fn is_any(&self, asked: &Asked<'_>) -> bool {
        (asked.is_so)(self)
    }
}

/// Keyspaces whose numbers are alike but for the rest: itself a member of a larger one.
#[derive(Debug)]
pub struct Part<M> {
    members: [Option<M>; FAN],
    /// Found out when it is asked for; not any more once a member may have changed.
    known: OnceLock<Known>,
    /// By [`Question`], likewise.
    answers: [Mutex<Option<Answer>>; QUESTIONS],
}

/// Of which members something is so: a bit each.
#[derive(Debug, Clone, Copy)]
struct Answer {
    members: u32,
    /// What else it went by.
    by: u64,
}

impl<M> Default for Part<M> {
    fn default() -> Part<M> {
        Part {
            members: array::from_fn(|_| None),
            known: OnceLock::new(),
            answers: Default::default(),
        }
    }
}

impl<M: Clone> Clone for Part<M> {
    /// To be changed: nothing is known of it.
    fn clone(&self) -> Part<M> {
        Part { members: self.members.clone(), ..Part::default() }
    }
}

impl<M: Member> Part<M> {
    /// The member at that place.
    pub fn get(&self, at: usize) -> Option<&M> {
        self.members.get(at)?.as_ref()
    }

    /// The same, to be changed; to be made, or removed.
    pub fn changing(&mut self, at: usize) -> &mut Option<M> {
        self.known = OnceLock::new();
        self.answers = Default::default();
        &mut self.members[at]
    }

    /// Its members in order.
    pub fn members(&self) -> impl DoubleEndedIterator<Item = &M> + Clone {
        self.members.iter().flatten()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.members().next().is_none()
    }

    /// What is known of its members.
    pub fn known(&self) -> &Known {
        self.known.get_or_init(|| {
            self.members().fold(Known::NOTHING, |known, member| known.and(member.known()))
        })
    }

    /// The members with a keyspace for which the answer is yes, in order.
    pub fn answering(&self, asked: &Asked<'_>) -> impl Iterator<Item = &M> {
        let answer = &self.answers[asked.question as usize];
        let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = answer.filter(|answer| answer.by == asked.by);
        let members = kept.map_or_else(|| self.ask(asked), |answer| answer.members);
        *answer = Some(Answer { members, by: asked.by });
        drop(answer);
        let all = self.members.iter().enumerate();
        all.filter(move |(at, _)| members & 1 << at != 0).filter_map(|(_, member)| member.as_ref())
    }

    fn ask(&self, asked: &Asked<'_>) -> u32 {
        let all = self.members.iter().enumerate();
        let yes = all.filter(|(_, m)| m.as_ref().is_some_and(|member| member.is_any(asked)));
        yes.fold(0, |members, (at, _)| members | 1 << at)
    }
}

impl<M: Member> Member for Arc<Part<M>> {
    fn known(&self) -> Known {
        *Part::known(self)
    }

    fn is_any(&self, asked: &Asked<'_>) -> bool {
        self.answering(asked).next().is_some()
    }
}
