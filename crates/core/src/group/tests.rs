use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// Answers each number with its double, after as long as is said; counts what leaves.
struct Doubles {
    most: usize,
    trips: usize,
    few: usize,
    takes: Duration,
    left: AtomicUsize,
    sent: Mutex<Vec<Vec<u64>>>,
}

impl Together for Doubles {
    type Key = u16;
    type Asked = u64;
    type Answer = u64;

    fn most(&self) -> usize {
        self.most
    }

    fn trips(&self) -> usize {
        self.trips
    }

    fn few(&self) -> usize {
        self.few
    }

    /// What is over a thousand is of another kind.
    fn kind(&self, number: &u64) -> u8 {
        u8::from(*number > 1_000)
    }

    fn leaves(&self, number: &mut u64, _: Instant) -> bool {
        let leaves = *number != 17;
        self.left.fetch_add(usize::from(leaves), Ordering::SeqCst);
        leaves
    }

    async fn send(&self, _: u16, gathered: Vec<Asking<Self>>) {
        lock(&self.sent).push(gathered.iter().map(|asking| asking.asked).collect());
        tokio::time::sleep(self.takes).await;
        for asking in gathered {
            match asking.asked {
                13 => drop(asking),
                14 => panic!("14"),
                number => asking.tell(number * 2),
            }
        }
    }
}

fn group(most: usize, trips: usize) -> Group<Doubles> {
    let (takes, left, sent) = (Duration::from_millis(100), AtomicUsize::new(0), Mutex::default());
    Group::new(Doubles { most, trips, few: 4, takes, left, sent })
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

async fn ask(group: Group<Doubles>, key: u16, number: u64) -> Result<u64, Unanswered> {
    match group.join(key, || number) {
        Turn::Alone(_alone) => {
            tokio::time::sleep(group.sends().takes).await;
            Ok(number * 2)
        }
        Turn::Together(ticket) => ticket.answer(soon(), None).await,
    }
}

fn asked(
    group: &Group<Doubles>,
    numbers: impl IntoIterator<Item = u64>,
) -> Vec<tokio::task::JoinHandle<Result<u64, Unanswered>>> {
    numbers.into_iter().map(|number| tokio::spawn(ask(group.clone(), 0, number))).collect()
}

#[tokio::test(start_paused = true)]
async fn whoever_is_alone_travels_at_once_and_all_others_together() {
    let group = group(256, 1);
    let started = Instant::now();
    for (at, answer) in asked(&group, 100..164).into_iter().enumerate() {
        assert_eq!(answer.await.unwrap(), Ok((100 + at as u64) * 2), "each its own");
    }
    assert_eq!(started.elapsed(), group.sends().takes * 2);
    assert_eq!(*lock(&group.sends().sent), [(101..164).collect::<Vec<_>>()]);
    assert!(lock(&group.0.lanes).by_key.is_empty(), "nothing is left");
}

#[tokio::test(start_paused = true)]
async fn no_trip_takes_more_than_it_may() {
    let group = group(10, 1);
    for answer in asked(&group, 100..131) {
        let _ = answer.await.unwrap();
    }
    let sizes: Vec<_> = lock(&group.sends().sent).iter().map(Vec::len).collect();
    assert_eq!(sizes, [10, 10, 10]);
}

#[tokio::test(start_paused = true)]
async fn so_many_trips_are_under_way_and_keys_do_not_meet() {
    let group = group(256, 2);
    let started = Instant::now();
    let mut all = asked(&group, [1, 2]);
    all.extend((1..5).map(|key| tokio::spawn(ask(group.clone(), key, 3))));
    for answer in all {
        answer.await.unwrap().unwrap();
    }
    assert_eq!(started.elapsed(), group.sends().takes, "none waited");
    assert!(lock(&group.sends().sent).is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_before_it_leaves_never_does_and_after_it_is_not_called_back() {
    let group = group(256, 1);
    let all = asked(&group, 0..10);
    tokio::time::sleep(Duration::from_millis(50)).await;
    all[3].abort();
    all[4].abort();
    tokio::time::sleep(Duration::from_millis(100)).await;
    all[5].abort();
    for (at, answer) in all.into_iter().enumerate() {
        assert_eq!(answer.await.is_err(), (3..=5).contains(&at));
    }
    assert_eq!(*lock(&group.sends().sent), [[1, 2, 5, 6, 7, 8, 9]]);
    assert_eq!(group.sends().left.load(Ordering::SeqCst), 7);
}

#[tokio::test(start_paused = true)]
async fn each_has_its_own_limit_and_knows_whether_it_left() {
    let group = group(256, 1);
    let first = asked(&group, [0]);
    tokio::task::yield_now().await;
    let Turn::Together(short) = group.join(0, || 1) else { panic!("the first is under way") };
    assert_eq!(short.answer(Instant::now() + Duration::from_millis(10), None).await, Err(Unanswered::NeverLeft));
    let Turn::Together(long) = group.join(0, || 2) else { panic!("the first is under way") };
    assert_eq!(long.answer(Instant::now() + Duration::from_millis(150), None).await, Err(Unanswered::NoAnswer));
    assert_eq!(*lock(&group.sends().sent), [[2]]);
    for answer in first {
        answer.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_told_has_no_answer_and_costs_the_others_nothing() {
    let group = group(256, 1);
    let mut all = asked(&group, 12..16).into_iter();
    assert_eq!(all.next().unwrap().await.unwrap(), Ok(24));
    assert_eq!(all.next().unwrap().await.unwrap(), Err(Unanswered::NoAnswer));
    // What the sender had not told when it panicked is not known either, and the next trip leaves.
    assert_eq!(all.next().unwrap().await.unwrap(), Err(Unanswered::NoAnswer));
    assert_eq!(all.next().unwrap().await.unwrap(), Err(Unanswered::NoAnswer));
    assert_eq!(ask(group.clone(), 0, 20).await, Ok(40));
}

#[tokio::test(start_paused = true)]
async fn what_is_posted_leaves_with_all_of_its_moment_and_what_is_over_never_does() {
    let group = group(256, 1);
    [1, 17, 2].into_iter().for_each(|number| group.post(0, number));
    tokio::task::yield_now().await;
    let Turn::Together(over) = group.join(0, || 17) else { panic!("the first are under way") };
    group.post(0, 3);
    assert_eq!(over.answer(soon(), None).await, Err(Unanswered::NeverLeft));
    tokio::time::sleep(group.sends().takes * 2).await;
    assert_eq!(*lock(&group.sends().sent), [vec![1, 2], vec![3]]);
    assert_eq!(group.sends().left.load(Ordering::SeqCst), 3);
    [17, 17].into_iter().for_each(|number| group.post(0, number));
    tokio::task::yield_now().await;
    assert!(lock(&group.0.lanes).by_key.is_empty(), "nothing is left");
}

/// Two trips of few, and one of many: beside that nobody leaves, whatever comes back meanwhile, unless it takes long.
#[tokio::test(start_paused = true)]
async fn beside_a_trip_of_many_nobody_leaves() {
    let (group, mut asked) = (group(256, 2), JoinSet::new());
    let at = async |millis: u64, began: Instant| tokio::time::sleep_until(began + Duration::from_millis(millis)).await;
    let (began, sent) = (Instant::now(), || lock(&group.sends().sent).clone());
    asked.spawn(ask(group.clone(), 0, 0));
    at(3, began).await;
    // This one leaves beside the first, and these with the first's return.
    (1..9).for_each(|number| drop(asked.spawn(ask(group.clone(), 0, number))));
    let many: Vec<_> = (2..9).collect();
    at(101, began).await;
    assert_eq!(sent(), std::slice::from_ref(&many));
    (9..12).for_each(|number| drop(asked.spawn(ask(group.clone(), 0, number))));
    at(104, began).await;
    asked.spawn(ask(group.clone(), 0, 12));
    at(105, began).await;
    assert_eq!(sent(), std::slice::from_ref(&many), "the second is back, and nobody has left beside the many");
    at(107, began).await;
    asked.spawn(ask(group.clone(), 0, 13));
    at(109, began).await;
    assert_eq!(
        sent(),
        [many.clone(), (9..14).collect::<Vec<_>>()],
        "who finds out that it takes long leaves with those who waited"
    );
    assert_eq!(asked.join_all().await.len(), 14);
    tokio::time::sleep(group.sends().takes * 2).await;
    assert!(lock(&group.0.lanes).by_key.is_empty(), "nothing is left");
}

/// Where the last trip of several took long, nobody waits for one that carries many.
#[tokio::test(start_paused = true)]
async fn where_the_way_is_long_another_leaves_at_once() {
    let (group, mut asked) = (group(256, 2), JoinSet::new());
    let (began, next) = (Instant::now(), std::cell::Cell::new(100));
    let mut ask = |many: u64| {
        for _ in 0..many {
            next.set(next.get() + 1);
            asked.spawn(ask(group.clone(), 0, next.get()));
        }
    };
    let at = async |millis: u64| tokio::time::sleep_until(began + Duration::from_millis(millis)).await;
    ask(1);
    at(1).await;
    ask(8); // one beside the first, and seven with the first's return, at 100
    at(104).await;
    ask(1);
    at(105).await;
    assert_eq!(group.waiting(), 1, "how long the way is, is not known yet");
    at(199).await;
    ask(6); // with the one that waits, until 299
    at(298).await;
    ask(5); // one alone, until 398, and four at 299
    at(397).await;
    ask(5); // at 398; a moment later the four are back
    at(401).await;
    ask(1);
    at(402).await;
    assert_eq!(group.waiting(), 0, "beside five, which have just left");
    while asked.join_next().await.is_some() {}
}

#[test]
fn a_runtime_that_ends_leaves_nobody_waiting() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (group, ticket_of) = runtime.block_on(async {
        let group = group(256, 1);
        let all = asked(&group, 0..5);
        tokio::time::sleep(Duration::from_millis(10)).await;
        (group, all)
    });
    assert_eq!(group.waiting(), 4);
    drop(runtime);
    drop(ticket_of);
    assert_eq!(group.waiting(), 0);
    let Turn::Alone(alone) = group.join(0, || 0) else { panic!("nobody is under way") };
    let Turn::Together(ticket) = group.join(0, || 1) else { panic!("one is") };
    drop(alone);
    let outside = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(outside.block_on(ticket.answer(soon(), None)), Err(Unanswered::NeverLeft));
}

#[tokio::test(start_paused = true)]
async fn only_those_of_a_kind_share_a_trip() {
    let group = group(3, 1);
    let alone = group.join(0, || 0);
    let mut tickets = Vec::new();
    for number in [1_001, 1, 1_002, 2, 3, 1_003, 1_004, 1_005] {
        match group.join(0, || number) {
            Turn::Together(ticket) => tickets.push((number, ticket)),
            Turn::Alone(_) => panic!("beside another"),
        }
    }
    // Whoever waits behind those who were left out can still be taken back.
    tickets.retain(|(number, _)| *number != 1_004);
    assert_eq!(group.waiting(), 7);
    drop(alone);
    for (number, ticket) in tickets {
        assert_eq!(ticket.answer(soon(), None).await, Ok(number * 2));
    }
    let sent = lock(&group.sends().sent).clone();
    assert_eq!(sent, [vec![1_001, 1_002, 1_003], vec![1, 2, 3], vec![1_005]]);
}

#[tokio::test(start_paused = true)]
async fn who_was_left_out_of_a_trip_can_be_taken_back() {
    let group = group(8, 1);
    let alone = group.join(0, || 0);
    let numbers = [1, 1_001, 2, 1_002];
    let mut tickets: Vec<_> = numbers
        .into_iter()
        .map(|number| match group.join(0, || number) {
            Turn::Together(ticket) => ticket,
            Turn::Alone(_) => panic!("beside another"),
        })
        .collect();
    drop(alone);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(group.waiting(), 2, "the others are under way");
    drop(tickets.remove(1));
    assert_eq!(group.waiting(), 1);
    for (ticket, answer) in tickets.into_iter().zip([2, 4, 2_004]) {
        assert_eq!(ticket.answer(soon(), None).await, Ok(answer));
    }
    let sent = lock(&group.sends().sent).clone();
    assert_eq!(sent, [vec![1, 2], vec![1_002]]);
}
