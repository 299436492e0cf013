-- What a process that lives runs has besides what everybody has: tools of the user's own and MCP servers, as JSON.
ALTER TABLE worker ADD COLUMN has TEXT NOT NULL DEFAULT '{}';
