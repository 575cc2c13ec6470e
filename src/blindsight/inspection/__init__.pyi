from .answering import Round as Round, answer as answer
from .question import Public as Public, Question as Question
from .report import Report as Report
from .session import Inquiry as Inquiry, Session as Session
