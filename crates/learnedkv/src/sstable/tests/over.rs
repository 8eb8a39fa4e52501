//! Tables that are written over the files of others.

use super::*;

const OPTIONS: TableOptions = TableOptions {
    limits: Limits { block_bytes: BLOCK_BYTES },
    index: IndexKind::Exact,
    compression: Compression::None,
    filter: None,
    filter_rests: false,
    is_scratch: false,
};

/// Writes table 2 over a file of `old_bytes`, if there is one; the open table, and whether it was over it.
fn over(context: &Arc<TableContext>, old_bytes: Option<usize>) -> (Table, bool) {
    let old = Path::new("/old");
    if let Some(old_bytes) = old_bytes {
        let file = context.disk.create(old).unwrap();
        file.write_all_at(&vec![0xA5; old_bytes], 0).unwrap();
        file.sync().unwrap();
    }
    let (mut writer, is_over) =
        TableWriter::over(old, &context.disk, Path::new("/"), 2, OPTIONS).unwrap();
    for number in 0..ENTRIES {
        writer.add(&key(number * 2), Kind::Value, number, &[number as u8; 20]).unwrap();
    }
    (Table::open(context, writer.finish().unwrap()).unwrap(), is_over)
}

fn length_bytes(context: &TableContext, path: &str) -> u64 {
    context.disk.open(Path::new(path), Access::Random).unwrap().length_bytes().unwrap()
}

#[test]
fn a_table_over_a_shorter_file_and_over_a_longer_one_is_as_any_other() {
    for old_bytes in [0, 5000, 1 << 20] {
        let context = context(0);
        let (table, is_over) = over(&context, Some(old_bytes));
        assert!(is_over);
        assert_eq!(context.disk.list(Path::new("/")).unwrap(), ["table-00000002"]);
        let bytes = table.file_bytes();
        assert_eq!(length_bytes(&context, "/table-00000002"), bytes, "over {old_bytes}");
        check(table, &format!("over {old_bytes} bytes"));
    }
}

/// A checkpoint has the same file under another name.
#[test]
fn a_file_that_has_another_name_stays_what_it_is() {
    let context = context(0);
    let old = context.disk.create(Path::new("/old")).unwrap();
    old.write_all_at(&[7; 9000], 0).unwrap();
    context.disk.link(Path::new("/old"), Path::new("/copy")).unwrap();
    let (table, is_over) = over(&context, None);
    assert!(!is_over);
    assert_eq!(context.disk.list(Path::new("/")).unwrap(), ["copy", "table-00000002"]);
    let mut bytes = vec![0; 9000];
    old.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == [7; 9000] && length_bytes(&context, "/copy") == 9000);
    check(table, "beside it");
}

#[test]
fn where_the_file_is_gone_the_table_is_written_to_a_new_one() {
    let context = context(0);
    let (table, is_over) = over(&context, None);
    assert!(!is_over);
    check(table, "in a new file");
}

/// What was lent keeps the map when the table is gone; and of a file that another engine wrote nothing is known.
#[test]
fn a_file_of_which_a_part_may_be_lent_is_not_alone() {
    for (is_ours, lends) in [(true, false), (true, true), (false, false)] {
        let context = context_on(Arc::new(SimDisk::new(1)), 0, true);
        let table = table(&context, IndexKind::Exact, Compression::None);
        if is_ours {
            table.is_ours();
        }
        table.note_all();
        table.check_written();
        let found = table.get(&Sought::new(&key(200), Caching::Fill)).unwrap();
        let Lookup::Value(value) = found else { panic!("{found:?}") };
        assert_eq!(context.metrics.mapped_reads.sum(), 1, "else this shows nothing");
        let lent = lends.then_some(value);
        table.retire(Some(7), context.graveyard.next_view());
        drop(table);
        let (_, retired) = context.graveyard.take().unwrap();
        assert_eq!(retired.is_alone, is_ours && !lends);
        assert!(lent.is_none_or(|value| *value == [100; 20]));
    }
}
