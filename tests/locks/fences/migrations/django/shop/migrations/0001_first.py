"""A migration that fails, or leaves a second row, if it runs twice."""

from django.db import migrations


class Migration(migrations.Migration):
    operations = [
        migrations.RunSQL(["CREATE TABLE shop_migrated (tool TEXT)", "INSERT INTO shop_migrated VALUES ('django')"]),
    ]
