"""The screens of the web page: each gathers what it shows and names the parts that live."""
