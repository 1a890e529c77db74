"""Django with one application, and the SQLite database that DATABASE names."""

import os
import sys

from django.conf import settings
from django.core.management import execute_from_command_line

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["DATABASE"]}},
    INSTALLED_APPS=["shop"],
)
execute_from_command_line(sys.argv)
