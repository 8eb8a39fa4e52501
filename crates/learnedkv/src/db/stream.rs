//! Values too long to hold in memory: written from a reader, read piece by piece.

use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::sync::Arc;

use super::database::Handle;
use super::operation::Operation;
use super::{Keyspace, Snapshot};
use crate::error::Result;
use crate::format::value::{CHUNK_BYTES, Layout, ValuePointer};
use crate::lsm::read::{self, Place};
use crate::options::{ReadOptions, WriteOptions};
use crate::slice::Slice;
use crate::value_log::Segment;

impl Keyspace {
    /// Sets the value of a key to all that `reader` gives, however much it is (64 GiB at most), in memory
    /// a small part at a time. Returns its length, bytes.
    ///
    /// A value as long as [`Builder::stream_at`](crate::Builder::stream_at) says (1 MiB), or longer, is in
    /// a file of its own, and durable, before the log points at it; only the pointer is as durable as
    /// the database's other writes. Nobody sees a part of it: the key has its old value until the reader has
    /// ended and the commit is made, and keeps it if the reader fails.
    ///
    /// ```
    /// # use learnedkv::{Database, KeyspaceOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("learnedkv-stream-{}", std::process::id()));
    /// # let db = Database::open(&dir)?;
    /// use std::io::Read;
    /// let films = db.keyspace("films", KeyspaceOptions::default())?;
    /// films.insert_reader("long", std::io::repeat(7).take(3 << 20))?;
    /// let mut reader = films.get_reader("long")?.expect("it was just put");
    /// assert_eq!(reader.len(), 3 << 20);
    /// let mut start = [0; 16];
    /// reader.read_exact(&mut start)?;
    /// assert_eq!(start, [7; 16]);
    /// # drop(reader);
    /// # db.close()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Io` if the reader fails (what it says, where that is an error of this crate: a value is copied from another database); otherwise
    /// as [`Keyspace::insert`]. Nothing was written then.
    pub fn insert_reader(&self, key: impl AsRef<[u8]>, reader: impl Read) -> Result<u64> {
        self.insert_reader_with(key, reader, WriteOptions::default())
    }

    /// As [`Keyspace::insert_reader`], done as `options` say.
    ///
    /// # Errors
    /// As [`Keyspace::insert_reader`] and [`Keyspace::insert_with`].
    pub fn insert_reader_with(
        &self,
        key: impl AsRef<[u8]>,
        mut reader: impl Read,
        options: impl Into<WriteOptions>,
    ) -> Result<u64> {
        let (engine, key) = (&self.handle().engine, key.as_ref());
        let durability = options.into().durability_or(engine.options.durability);
        let operation = Operation::read_from(self, key, &mut reader)?;
        let streamed = operation.streamed.as_ref().map(|streamed| streamed.length_bytes());
        let length = streamed.unwrap_or(operation.value.len() as u64);
        operation.commit(engine, self.id(), key, |commit| {
            engine.commit(commit, durability).map(|()| true)
        })?;
        Ok(length)
    }

    /// The value of a key, to be read piece by piece; `None` if it is not there. It stays as it is, whatever
    /// becomes of the key meanwhile.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get_reader(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        self.get_reader_with(key, &ReadOptions::default())
    }

    /// As [`Keyspace::get_reader`], the key being looked for as `options` say; the pieces of a value that is kept apart
    /// are never cached.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get_reader_with(
        &self,
        key: impl AsRef<[u8]>,
        options: &ReadOptions,
    ) -> Result<Option<ValueReader>> {
        let (key, asking) = (key.as_ref(), options.asking());
        let place =
            self.look(|engine, view, visible| read::place(engine, view, key, visible, asking))?;
        Ok(place.map(|place| ValueReader::new(self.handle().clone(), key, place)))
    }
}

impl Snapshot {
    /// The value a key had, to be read piece by piece; see [`Keyspace::get_reader`].
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_reader(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<ValueReader>> {
        self.get_reader_with(keyspace, key, &ReadOptions::default())
    }

    /// As [`Snapshot::get_reader`], done as `options` say; see [`Keyspace::get_reader_with`].
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_reader_with(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        options: &ReadOptions,
    ) -> Result<Option<ValueReader>> {
        let (key, asking) = (key.as_ref(), options.asking());
        let (engine, view) = (&self.handle().engine, self.keyspace(keyspace)?);
        let place = read::place(engine, &view, key, self.visible(), asking)?;
        Ok(place.map(|place| ValueReader::new(self.handle().clone(), key, place)))
    }
}

/// Reads one value, in order or from wherever it is sought to. Of one that is kept apart from its key,
/// at most 256 KiB are in memory (as many again while a compressed piece is decompressed, and eight bytes
/// for each piece); each piece is checked as it is read (`InvalidData` if it is damaged).
#[derive(Debug)]
pub struct ValueReader {
    _handle: Arc<Handle>,
    value: Value,
    position: u64,
    length: u64,
}

#[derive(Debug)]
enum Value {
    Whole(Slice),
    Stored {
        segment: Arc<Segment>,
        pointer: ValuePointer,
        key: Vec<u8>,
        /// Where its chunks stand, once one was read.
        layout: Option<Layout>,
        /// The chunk read last, and its number.
        chunk: Option<(u64, Slice)>,
    },
}

impl ValueReader {
    fn new(handle: Arc<Handle>, key: &[u8], place: Place) -> ValueReader {
        let (value, length) = match place {
            Place::Here(value) => {
                let length = value.len() as u64;
                (Value::Whole(value), length)
            }
            Place::Apart(segment, pointer) => {
                let (key, layout, chunk) = (key.to_vec(), None, None);
                (Value::Stored { segment, pointer, key, layout, chunk }, pointer.length)
            }
        };
        ValueReader { _handle: handle, value, position: 0, length }
    }

    /// How long the whole value is, bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether the value is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl BufRead for ValueReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.position >= self.length {
            return Ok(&[]);
        }
        match &mut self.value {
            Value::Whole(value) => Ok(value.get(self.position as usize..).unwrap_or_default()),
            Value::Stored { segment, pointer, key, layout, chunk } => {
                let index = self.position / CHUNK_BYTES as u64;
                if chunk.as_ref().is_none_or(|(number, _)| *number != index) {
                    // Let go of first: two are never held.
                    *chunk = None;
                    let layout = match layout {
                        Some(layout) => layout,
                        none => none.insert(segment.layout(key, *pointer)?),
                    };
                    *chunk = Some((index, segment.load_chunk(key, layout, index)?));
                }
                let from = (self.position % CHUNK_BYTES as u64) as usize;
                let bytes = chunk.as_ref().and_then(|(_, bytes)| bytes.get(from..));
                Ok(bytes.unwrap_or_default())
            }
        }
    }

    fn consume(&mut self, bytes: usize) {
        self.position += bytes as u64;
    }
}

impl Read for ValueReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

impl Seek for ValueReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(by) => self.length.checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        let message = "sought to a place before the value's first byte";
        let refused = || io::Error::new(io::ErrorKind::InvalidInput, message);
        self.position = position.ok_or_else(refused)?;
        Ok(self.position)
    }
}
