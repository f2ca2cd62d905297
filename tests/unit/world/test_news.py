"""Tests of what an agent tells the launcher if Ray loses a question or an answer."""

from __future__ import annotations

import threading

from devshim.world.news import News


def test_an_answer_that_did_not_arrive_is_given_again() -> None:
    news = News()
    news.add("late", 0)
    assert news.take(0, 0) == [("late", 0)]
    news.add("late", 1)
    assert news.take(0, 0) == [("late", 0)]
    assert news.take(0, 1) == [("late", 1)]
    assert news.take(0, 2) == []


def test_a_question_whose_answer_gets_lost_takes_nothing_from_the_next() -> None:
    news, answers = News(), []
    asking = [threading.Thread(target=lambda: answers.append(news.take(60, 0))) for _ in range(2)]
    for each in asking:
        each.start()
    news.add("late", 0)
    for each in asking:
        each.join(60)
    assert answers == [[("late", 0)]] * 2


def test_lines_of_one_rank_are_one_event_and_more_than_fit_wait() -> None:
    news = News()
    news.add_line(0, "stdout", "a")
    news.add_line(0, "stdout", "b")
    news.add_line(1, "stdout", "c" * 2**20)
    assert news.is_full
    waiting = threading.Thread(target=news.add_line, args=(1, "stdout", "d"))
    waiting.start()
    first = news.take(0, 0)
    assert first[0] == ("output", 0, "stdout", ["a", "b"])
    waiting.join(60)
    assert not news.is_full
    found = first + news.take(60, 1) if first[-1][3][-1] != "d" else first
    assert [line[:1] for *_, lines in found for line in lines] == ["a", "b", "c", "d"]
