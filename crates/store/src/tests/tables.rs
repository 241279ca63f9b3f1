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

#[test]
fn of_threads_that_make_a_table_one_has_made_it() {
    // Fails if a caller that takes success for ownership, as of a lock, shares it with another.
    let directory = tempfile::tempdir().unwrap();
    let options = Db::options().engine("wophi").durability(Durability::Process);
    let db = options.background(false).create(directory.path().join("pairs.ehdb")).unwrap();
    // Whoever is behind catches up, as a refusal takes no time: so they meet at most names.
    const NAMES: u32 = 20_000;
    let make_all = || {
        let makes = |number: &u32| match db.create_table(&number.to_string()) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::TableExists => false,
            Err(error) => panic!("{error}"),
        };
        (0..NAMES).filter(makes).count()
    };
    let made: usize = std::thread::scope(|scope| {
        let threads = [(); 3].map(|()| scope.spawn(make_all));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(made, NAMES as usize);
}
