//! What databases hold, as the model has it and as it is read: in every way, which must all agree.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::{ControlFlow, Deref, DerefMut};

use learnedkv::{Database, Keyspace, ReadOptions, Result, Slice};

use crate::keys::Keys;
use crate::workload::KEYS;

/// The entries of a keyspace, as a map; and the external position of its newest commit that carried one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    pub position: Option<[u8; 16]>,
}

impl Content {
    pub fn new() -> Content {
        Content::default()
    }
}

impl Deref for Content {
    type Target = BTreeMap<Vec<u8>, Vec<u8>>;

    fn deref(&self) -> &Self::Target {
        &self.entries
    }
}

impl DerefMut for Content {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.entries
    }
}

impl FromIterator<(Vec<u8>, Vec<u8>)> for Content {
    fn from_iter<I: IntoIterator<Item = (Vec<u8>, Vec<u8>)>>(entries: I) -> Content {
        Content { entries: entries.into_iter().collect(), position: None }
    }
}

impl<const N: usize> From<[(Vec<u8>, Vec<u8>); N]> for Content {
    fn from(entries: [(Vec<u8>, Vec<u8>); N]) -> Content {
        entries.into_iter().collect()
    }
}

impl IntoIterator for Content {
    type Item = (Vec<u8>, Vec<u8>);
    type IntoIter = std::collections::btree_map::IntoIter<Vec<u8>, Vec<u8>>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl<'a> IntoIterator for &'a Content {
    type Item = (&'a Vec<u8>, &'a Vec<u8>);
    type IntoIter = std::collections::btree_map::Iter<'a, Vec<u8>, Vec<u8>>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter()
    }
}

/// The entries of all keyspaces, by name.
pub type Model = BTreeMap<String, Content>;

type Entry = Result<(Slice, Slice)>;

fn pairs(entries: impl Iterator<Item = Entry>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    entries.map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect()
}

/// What a keyspace holds, upwards, downwards and key by key.
///
/// # Panics
/// If these differ.
pub fn content(keyspace: &Keyspace, keys: Keys) -> Result<Content> {
    content_by(keyspace, keys, &ReadOptions::default(), Ways::All)
}

/// In which ways everything is read.
#[derive(Debug, Clone, Copy)]
enum Ways {
    All,
    /// Upwards, in one other way, and each key in one way: which, this number says.
    Few(u64),
}

impl Ways {
    /// Whether it is the turn of `way` of `count`, for the `number`th key.
    fn has(self, way: u64, count: u64, number: u64) -> bool {
        match self {
            Ways::All => true,
            Ways::Few(turn) => (turn + number) % count == way,
        }
    }
}

/// The same, read as `reads` says where one can choose.
fn content_by(keyspace: &Keyspace, keys: Keys, reads: &ReadOptions, ways: Ways) -> Result<Content> {
    let up = pairs(keyspace.range_with::<&[u8]>(.., reads))?;
    assert!(up.is_sorted_by(|a, b| a.0 < b.0), "out of order: {up:?}");
    if ways.has(0, 4, 0) {
        let mut down = pairs(keyspace.range_with::<&[u8]>(.., reads).rev())?;
        down.reverse();
        assert_eq!(up, down, "downwards and upwards");
    }
    if ways.has(1, 4, 0) {
        let mut lent = Vec::new();
        keyspace.iter().visit(|key, value| {
            lent.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        assert_eq!(up, lent, "lent and handed out");
    }
    let mut content: Content = up.into_iter().collect();
    content.position = keyspace.external_position()?;
    if ways.has(2, 4, 0) {
        check_without_values(keyspace, keys, &content)?;
    }
    if ways.has(3, 4, 0) {
        check_many(keyspace, keys, &content, reads)?;
    }
    for number in 0..KEYS {
        check_key(keyspace, &keys.key(number), &content, reads, |way| ways.has(way, 7, number))?;
    }
    Ok(content)
}

/// What a key has, and what is beside it, in those of seven ways that `has` names.
fn check_key(
    keyspace: &Keyspace,
    key: &[u8],
    content: &Content,
    reads: &ReadOptions,
    has: impl Fn(u64) -> bool,
) -> Result<()> {
    let expected = content.get(key).map(Vec::as_slice);
    if has(0) {
        let found = keyspace.get_with(key, reads)?;
        assert_eq!(found.as_deref(), expected, "get and iter: {key:?}");
    }
    if has(1) {
        let found = keyspace.get_with(key, &ReadOptions::default().at_once(true))?;
        assert_eq!(found.as_deref(), expected, "at once: {key:?}");
    }
    if has(2) {
        check_reader(keyspace, key, expected, reads)?;
    }
    if has(3) {
        assert_eq!(keyspace.contains_key(key)?, expected.is_some(), "contains: {key:?}");
    }
    if has(4) {
        let size = expected.map(|value| value.len() as u64);
        assert_eq!(keyspace.size_of(key)?, size, "size of {key:?}");
    }
    // Entered in the middle, both ways.
    if has(5) {
        let after = keyspace.range(key..).next().transpose()?;
        let expected = content.range::<[u8], _>((Included(key), Unbounded)).next();
        assert_eq!(after.as_ref().map(|(k, v)| (&**k, &**v)), borrowed(expected), "from {key:?}");
    }
    if has(6) {
        let before = keyspace.range(..key).next_back().transpose()?;
        let expected = content.range::<[u8], _>((Unbounded, Excluded(key))).next_back();
        assert_eq!(before.as_ref().map(|(k, v)| (&**k, &**v)), borrowed(expected), "below {key:?}");
    }
    Ok(())
}

/// Many keys at once, in no order, some more than once, some that nobody ever wrote.
fn check_many(
    keyspace: &Keyspace,
    keys: Keys,
    content: &Content,
    reads: &ReadOptions,
) -> Result<()> {
    for (step, count) in [(1, KEYS + 5), (37, 2 * KEYS), (11, 7), (1, 0)] {
        let many: Vec<_> = (0..count).map(|i| keys.key(i * step % (KEYS + 10))).collect();
        for options in [*reads, ReadOptions::default(), ReadOptions::default().at_once(true)] {
            let found = keyspace.multi_get_with(&many, &options)?;
            let expected = many.iter().map(|key| content.get(key).map(Vec::as_slice));
            let found = found.iter().map(Option::as_deref);
            assert!(found.eq(expected), "many keys, step {step}, {options:?}");
        }
    }
    Ok(())
}

/// Reads that touch no value, and those of the ends, against what the walks found.
fn check_without_values(keyspace: &Keyspace, keys: Keys, content: &Content) -> Result<()> {
    let owned = |keys: Result<Vec<Slice>>| -> Result<Vec<Vec<u8>>> {
        Ok(keys?.into_iter().map(Vec::from).collect())
    };
    assert!(owned(keyspace.keys().collect())?.iter().eq(content.keys()), "keys");
    assert!(owned(keyspace.keys().rev().collect())?.iter().eq(content.keys().rev()), "keys down");
    let sizes: Vec<_> = keyspace.iter().sizes().collect::<Result<_>>()?;
    let expected = content.iter().map(|(key, value)| (key.as_slice(), value.len() as u64));
    assert!(sizes.iter().map(|(key, size)| (&**key, *size)).eq(expected), "sizes");
    let first = keyspace.first_key_value()?;
    let first = first.as_ref().map(|(k, v)| (&**k, &**v));
    assert_eq!(first, borrowed(content.first_key_value()), "first");
    let last = keyspace.last_key_value()?;
    assert_eq!(
        last.as_ref().map(|(k, v)| (&**k, &**v)),
        borrowed(content.last_key_value()),
        "last"
    );
    assert_eq!(keyspace.is_empty()?, content.is_empty(), "is empty");
    for prefix in (0..KEYS).step_by(7).map(|number| keys.prefix(number)) {
        let found = pairs(keyspace.prefix(&prefix))?;
        let expected = content.iter().filter(|(key, _)| key.starts_with(&prefix));
        let expected: Vec<_> = expected.map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(found, expected, "prefix {}", prefix.escape_ascii());
    }
    Ok(())
}

/// What a database holds.
///
/// # Panics
/// If different ways of reading differ.
pub fn contents(db: &Database, keys: Keys) -> Result<Model> {
    contents_by(db, keys, &ReadOptions::default())
}

/// The same, read as `reads` says where one can choose.
pub fn contents_by(db: &Database, keys: Keys, reads: &ReadOptions) -> Result<Model> {
    of_all(db, |keyspace| content_by(keyspace, keys, reads, Ways::All))
}

/// The same, and each key in one way of seven alone, for what is opened thousands of times. Which, `turn` says.
pub fn contents_in_turn(db: &Database, keys: Keys, turn: u64) -> Result<Model> {
    of_all(db, |keyspace| content_by(keyspace, keys, &ReadOptions::default(), Ways::Few(turn)))
}

fn of_all(db: &Database, content: impl Fn(&Keyspace) -> Result<Content>) -> Result<Model> {
    let content = |name: String| {
        let keyspace = db.find(&name).expect("a keyspace that was named");
        Ok((name, content(&keyspace)?))
    };
    db.keyspace_names().into_iter().map(content).collect()
}

/// A key's value comes piece by piece as it comes whole.
fn check_reader(
    keyspace: &Keyspace,
    key: &[u8],
    whole: Option<&[u8]>,
    options: &ReadOptions,
) -> Result<()> {
    let Some(mut reader) = keyspace.get_reader_with(key, options)? else {
        assert_eq!(whole, None, "no reader: {key:?}");
        return Ok(());
    };
    let mut pieces = Vec::new();
    match reader.read_to_end(&mut pieces) {
        Ok(_) => assert_eq!(Some(&*pieces), whole, "in pieces: {key:?}"),
        Err(error) => {
            let inner = error.into_inner().and_then(|inner| inner.downcast().ok());
            return Err(*inner.expect("an error of the database"));
        }
    }
    Ok(())
}

/// Reads a key in all ways.
///
/// # Panics
/// If they differ.
pub fn read_in_all_ways(keyspace: &Keyspace, key: &[u8]) -> Result<()> {
    let leave = ReadOptions::default().fill_cache(false);
    let all = [leave, leave.at_once(true), ReadOptions::default().at_once(true)];
    let found = keyspace.get(key)?;
    for options in all {
        assert_eq!(keyspace.get_with(key, &options)?, found, "{key:?}, {options:?}");
        check_reader(keyspace, key, found.as_deref(), &options)?;
        let size = found.as_ref().map(|value| value.len() as u64);
        assert_eq!(keyspace.size_of_with(key, &options)?, size, "{key:?}, {options:?}");
        let many = keyspace.multi_get_with([key], &options)?;
        assert_eq!(many, std::slice::from_ref(&found), "{key:?}, {options:?}");
    }
    Ok(())
}

/// What differs between two models, for people.
pub fn difference(found: &Model, expected: &Model) -> String {
    for (name, content) in expected {
        let Some(there) = found.get(name) else { return format!("keyspace {name} is missing") };
        for (key, value) in content {
            let found = there.get(key);
            if found != Some(value) {
                let value_of = |v: Option<&Vec<u8>>| v.map(|v| (v.first().copied(), v.len()));
                let key = key.escape_ascii();
                let (found, expected) = (value_of(found), value_of(Some(value)));
                return format!("{name}/{key}: expected {expected:?}, found {found:?}");
            }
        }
        if there.position != content.position {
            let (found, expected) = (there.position, content.position);
            return format!("{name}: expected the position {expected:x?}, found {found:x?}");
        }
        if let Some(key) = there.keys().find(|key| !content.contains_key(*key)) {
            return format!("{name}/{}: expected nothing, found a value", key.escape_ascii());
        }
    }
    match found.keys().find(|name| !expected.contains_key(*name)) {
        Some(name) => format!("keyspace {name} should not be there"),
        None => "no difference".to_owned(),
    }
}

fn borrowed<'a>(entry: Option<(&'a Vec<u8>, &'a Vec<u8>)>) -> Option<(&'a [u8], &'a [u8])> {
    entry.map(|(key, value)| (key.as_slice(), value.as_slice()))
}

/// One that is never taken would be read in no opening of three in four.
#[test]
fn each_way_has_its_turn() {
    for count in [4, 7] {
        for number in 0..count {
            let taken =
                |turn| (0..count).filter(|way| Ways::Few(turn).has(*way, count, number)).collect();
            let mut taken: Vec<Vec<u64>> = (0..count).map(taken).collect();
            taken.sort();
            assert_eq!(taken, (0..count).map(|way| vec![way]).collect::<Vec<_>>());
        }
    }
    assert!((0..7).all(|way| Ways::All.has(way, 7, 3)));
}
