"""`lagrax fit`: from a table to estimates, a forecast and a report in a folder of their own."""
