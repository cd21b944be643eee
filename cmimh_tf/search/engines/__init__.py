"""Where an index is stored and searched: a folder, PostgreSQL or Milvus, behind one interface."""
