"""Keep all access rules. The cost of finding the rules for a resource does not grow with the number of rules.

Literal rules are found by the resource's name. Prefixed rules are found by one lookup for each prefix length. The rules
of one pattern are grouped by principal and host, so a pattern with rules for many clients takes no longer than another
pattern.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeAlias

from ...protocol.access_rules import AclResourceType, PatternType
from ..scheduling.steps import SLICE, Steps
from .acl import WILDCARD, Acl, AclFilter

RulesByClient: TypeAlias = Mapping[tuple[str, str], Collection[Acl]]
"""Rules by the principal and the host that they name."""

_Rules: TypeAlias = dict[Acl, None]
"""A set of rules in the order in which they were added."""

_Pattern: TypeAlias = tuple[int, int, str]
"""A resource type, a pattern type and a name."""

_COPIED_PER_UNIT: Final = 100
"""The number of rules that are copied from one collection to another in one unit of work (`steps.py`)."""


class AclIndex:
    """A set of access rules. `version` changes whenever the set changes."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self.version = 0
        self._acls: _Rules = {}
        self._patterns: dict[_Pattern, dict[tuple[str, str], _Rules]] = {}
        self._of_principal: dict[tuple[int, str], _Rules] = {}  # by resource type and principal
        # By resource type: the number of patterns of each prefix length, and these lengths in ascending order.
        self._lengths: dict[int, Counter[int]] = {}
        self._sorted_lengths: dict[int, list[int]] = {}
        self.add(acls)

    def __len__(self) -> int:
        return len(self._acls)

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._acls)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._acls

    def add(self, acls: Iterable[Acl]) -> None:
        """Add rules. Rules that the set already contains are ignored."""
        for acl in acls:
            if acl in self._acls:
                continue
            self._acls[acl] = None
            pattern = acl.resource_type, acl.pattern_type, acl.resource_name
            rules = self._patterns.get(pattern)
            if rules is None:
                rules = self._patterns[pattern] = {}
                if acl.pattern_type == PatternType.PREFIXED:
                    self._add_length(acl)
            rules.setdefault((acl.principal, acl.host), {})[acl] = None
            self._of_principal.setdefault((acl.resource_type, acl.principal), {})[acl] = None
        self.version += 1

    def remove(self, acls: Iterable[Acl]) -> None:
        """Remove rules. Rules that the set does not contain are ignored."""
        for acl in acls:
            if acl not in self._acls:
                continue
            del self._acls[acl]
            pattern = acl.resource_type, acl.pattern_type, acl.resource_name
            rules = self._patterns[pattern]
            client = acl.principal, acl.host
            del rules[client][acl]
            if not rules[client]:
                del rules[client]
            if not rules:
                del self._patterns[pattern]
                if acl.pattern_type == PatternType.PREFIXED:
                    self._remove_length(acl)
            owned = self._of_principal[acl.resource_type, acl.principal]
            del owned[acl]
            if not owned:
                del self._of_principal[acl.resource_type, acl.principal]
        self.version += 1

    def _add_length(self, acl: Acl) -> None:
        length = len(acl.resource_name)
        lengths = self._lengths.setdefault(acl.resource_type, Counter())
        if not lengths[length]:
            insort(self._sorted_lengths.setdefault(acl.resource_type, []), length)
        lengths[length] += 1

    def _remove_length(self, acl: Acl) -> None:
        length = len(acl.resource_name)
        lengths = self._lengths[acl.resource_type]
        lengths[length] -= 1
        if not lengths[length]:
            self._sorted_lengths[acl.resource_type].remove(length)

    @property
    def most_lengths(self) -> int:
        """The largest number of different prefix lengths that any type of resource has."""
        return max(map(len, self._sorted_lengths.values()), default=0)

    def matching(self, resource_type: int, name: str) -> Iterator[RulesByClient]:
        """Yield, for each pattern that matches a resource, the pattern's rules by client."""
        patterns = self._patterns
        rules = patterns.get((resource_type, PatternType.LITERAL, name))
        if rules is not None:
            yield rules
        if name != WILDCARD:
            rules = patterns.get((resource_type, PatternType.LITERAL, WILDCARD))
            if rules is not None:
                yield rules
        size = len(name)
        for length in self._sorted_lengths.get(resource_type, ()):
            if length > size:
                break
            rules = patterns.get((resource_type, PatternType.PREFIXED, name[:length]))
            if rules is not None:
                yield rules

    def of_principal(self, resource_type: int, principal: str) -> Iterable[Acl]:
        """Return the rules that name exactly this principal, for resources of one type."""
        return self._of_principal.get((resource_type, principal), ())

    @property
    def units(self) -> int:
        """The cost of finding a resource's patterns, in units of work (`steps.py`). It grows with `most_lengths`."""
        return 1 + self.most_lengths // 8

    def candidates(self, wanted: AclFilter) -> Steps[list[Acl]]:
        """Return, in steps, a list that contains every rule that the filter `wanted` matches.

        If the filter has a resource name or a principal, the list contains only the rules for that name or for that
        principal. Otherwise it contains all rules. The caller must still check each rule with the filter. A rule may
        have been removed between the steps.
        """
        types = [wanted.resource_type] if wanted.resource_type != AclResourceType.ANY else list(AclResourceType)
        named: list[RulesByClient] | None = None
        owned: list[_Rules] | None = None
        if wanted.resource_name is not None:
            named = []
            for resource_type in types:
                named += self._named(resource_type, wanted.pattern_type, wanted.resource_name)
                yield self.units
        if wanted.principal is not None:
            owned = [rules for each in types if (rules := self._of_principal.get((each, wanted.principal)))]
            if not owned:
                return []
        if named is not None and (owned is None or sum(map(len, named)) < sum(map(len, owned))):
            return (yield from _listed(named))
        found: list[Acl] = []
        for rules in [self._acls] if owned is None else owned:
            found += rules
        yield len(found) // _COPIED_PER_UNIT
        return found

    def _named(self, resource_type: int, pattern_type: int, name: str) -> Iterable[RulesByClient]:
        if pattern_type == PatternType.MATCH:
            return self.matching(resource_type, name)
        kinds = (PatternType.LITERAL, PatternType.PREFIXED)
        return [rules for kind in kinds if (rules := self._patterns.get((resource_type, kind, name)))]


def _listed(patterns: Iterable[RulesByClient]) -> Steps[list[Acl]]:
    """Return, in steps, the rules of the patterns."""
    found: list[Acl] = []
    for rules in patterns:
        remaining = iter(list(rules.values()))
        while portion := list(islice(remaining, SLICE)):
            for acls in portion:
                found += acls
            yield len(portion) // 4
        yield 1
    return found
