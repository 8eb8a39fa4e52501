//! Tables that a job writes: begun when the first entry comes, removed if the job fails.

use std::sync::Arc;

use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::error::Result;
use crate::format::entry::{Kind, SequenceNumber};
use crate::format::manifest::TableRecord;
use crate::sstable::reader::Table;
use crate::sstable::table_path;
use crate::sstable::writer::{TableOptions, TableWriter};

/// The most bytes of entries that a job writes in one step; less where memtables are small.
const STEP_BYTES: u64 = 1 << 20;

/// Finished tables in key order, and the one being written.
pub struct Output {
    engine: Arc<Engine>,
    options: TableOptions,
    writer: Option<TableWriter>,
    records: Vec<TableRecord>,
}

impl Output {
    /// No tables yet.
    pub fn new(engine: &Arc<Engine>, options: TableOptions) -> Output {
        Output { engine: engine.clone(), options, writer: None, records: Vec::new() }
    }

    /// Adds an entry to the table being written.
    ///
    /// # Errors
    /// Any error of the disk.
    pub fn add(
        &mut self,
        key: &[u8],
        kind: Kind,
        sequence: SequenceNumber,
        value: &[u8],
    ) -> Result<()> {
        if self.writer.is_none() {
            let id = self.engine.next_file();
            let (disk, dir) = (self.engine.disk(), self.engine.dir());
            self.writer = Some(TableWriter::create(&**disk, dir, id, self.options)?);
        }
        match &mut self.writer {
            Some(writer) => writer.add(key, kind, sequence, value),
            None => unreachable!("a writer was just made"),
        }
    }

    /// What the table being written takes so far, about.
    pub fn data_bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, TableWriter::data_bytes)
    }

    /// Finishes the table being written, if there is one; the next entry begins another.
    ///
    /// # Errors
    /// Any error of the disk.
    pub fn end_table(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            let id = writer.id();
            match writer.finish() {
                Ok(record) => self.records.push(record),
                Err(e) => {
                    self.remove(id);
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Copies a step's bytes of entries for which `wanted` is true from `cursor`; `stop` says
    /// before which key the copy ends. Returns whether it ended there or at the cursor's end.
    ///
    /// # Errors
    /// Those of the cursor and of the disk.
    pub fn copy(
        &mut self,
        cursor: &mut dyn Cursor,
        keep_tombstones: bool,
        stop: &mut dyn FnMut(&Output, &[u8]) -> bool,
    ) -> Result<bool> {
        let mut copied = 0u64;
        let step_bytes = STEP_BYTES.min(self.engine.options.memtable_bytes as u64 / 2);
        while copied < step_bytes {
            let Some(key) = cursor.key() else { return Ok(true) };
            if stop(self, key) {
                return Ok(true);
            }
            let (kind, sequence) = cursor.kind();
            if keep_tombstones || kind != Kind::Tombstone {
                self.add(key, kind, sequence, cursor.value())?;
            }
            copied += (key.len() + cursor.value().len() + 16) as u64;
            cursor.advance()?;
        }
        Ok(false)
    }

    /// Ends the last table, makes all names durable and opens the tables.
    ///
    /// # Errors
    /// Any error of the disk.
    pub fn finish(&mut self) -> Result<(Vec<TableRecord>, Vec<Arc<Table>>)> {
        self.end_table()?;
        if !self.records.is_empty() {
            self.engine.disk().sync_dir(self.engine.dir())?;
        }
        let tables = self.records.iter().map(|record| self.engine.open_table(record));
        let tables = tables.collect::<Result<Vec<_>>>()?;
        Ok((self.records.clone(), tables))
    }

    /// The tables are named by a durable edit: they stay.
    pub fn keep(&mut self) {
        self.records.clear();
    }

    fn remove(&self, id: u64) {
        // What cannot be removed is an orphan that the next open removes.
        let _ = self.engine.disk().remove(&table_path(self.engine.dir(), id));
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.engine.health.is_poisoned() {
            // Perhaps the edit that names them is on the disk. The next open knows.
            return;
        }
        if let Some(writer) = self.writer.take() {
            self.remove(writer.id());
        }
        for record in std::mem::take(&mut self.records) {
            self.remove(record.id);
        }
    }
}
