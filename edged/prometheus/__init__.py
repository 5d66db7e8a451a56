"""The figures of the metrics topic for Prometheus: `GET /metrics` on an address of this box, off by default.

Imported only where the configuration has `metrics.prometheus`. A scrape reads what the daemon counts anyway, on a
thread of its own; it takes nothing from the intervals of the metrics topic.
"""

from edged.prometheus.endpoint import Endpoint
from edged.prometheus.figures import Figures, Sources

__all__ = ["Endpoint", "Figures", "Sources"]
