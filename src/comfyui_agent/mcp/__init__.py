"""How AI agents talk to E3: tools, resources and prompts of the Model Context Protocol."""
