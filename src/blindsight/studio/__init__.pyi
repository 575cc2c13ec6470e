from .agreeing import Agreement as Agreement, agreement as agreement, majority as majority
from .annotations import export_annotations as export_annotations, import_annotations as import_annotations
from .labels import Decision as Decision, Labels as Labels
from .queue import Queue as Queue
