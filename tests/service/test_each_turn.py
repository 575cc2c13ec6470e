"""Work on what is asked for in one turn of the event loop."""

import asyncio

import pytest

from blindsight.service.each_turn import EachTurn


def test_what_is_asked_for_in_one_turn_is_done_at_once_and_each_gets_its_own():
    parts = list[list[int]]()

    async def double(items: list[int]) -> list[int]:
        parts.append(items)
        await asyncio.sleep(0)
        if 13 in items:
            raise ValueError("thirteen")
        return [2 * item for item in items]

    async def check():
        together = EachTurn(double, 4)
        assert await asyncio.gather(*(together.result(number) for number in range(10))) == list(range(0, 20, 2))
        assert await together.result(10) == 20
        assert parts == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [10]]
        left, kept, failing = together.result(11), together.result(12), together.result(5)
        left.cancel()  # its client is gone
        assert (await kept, await failing) == (24, 10)
        failing, other = together.result(13), together.result(14)
        for one in (failing, other):
            with pytest.raises(ValueError, match="thirteen"):
                await one
        assert await together.result(15) == 30

    asyncio.run(check())
