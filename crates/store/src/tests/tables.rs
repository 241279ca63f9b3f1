//! Tables, where it only shows from inside or takes two threads.

use everhash_index::Form;

use crate::{Db, Durability, ErrorKind, WriteBatch};

#[test]
fn a_batch_for_the_default_table_of_another_database_is_refused() {
    // Fails if a pair were written into this database that was meant for another one.
    for form in [Form::Variable, Form::WORDS] {
        let directory = tempfile::tempdir().unwrap();
        let options = Db::options().form(form).durability(Durability::Process);
        let [one, other] =
            ["a", "b"].map(|name| options.create(directory.path().join(name)).unwrap());
        let mut batch = WriteBatch::new();
        batch.put([1; 8], [1; 8]).put_in(&one, [2; 8], [2; 8]);
        assert_eq!(other.write(&batch).unwrap_err().kind(), ErrorKind::NoTable);
        batch.clear();
        batch.put([1; 8], [1; 8]).remove_in(&one, [2; 8]);
        let error = other.write(&batch).unwrap_err();
        assert!(error.to_string().contains(one.path().to_str().unwrap()), "{error}");
        assert!(other.is_empty().unwrap() && one.is_empty().unwrap());
        one.write(&batch).unwrap();
        batch.clear();
        batch.put_in(&other, [1; 8], [1; 8]);
        other.write(&batch).unwrap();
        assert_eq!((one.len().unwrap(), other.len().unwrap()), (1, 1));
    }
}
