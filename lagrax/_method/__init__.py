from ._read import method_of as method_of
from ._tableau import Method as Method
from ._tableau import combine as combine
from ._tableau import node_times as node_times
