// The link's fragment holds a token that browsers send to nobody: post it once, and forget it.
const token = location.hash.slice(1);
const status = document.getElementById("said");

if (token) {
  history.replaceState(null, "", location.pathname);
  const answer = await fetch("/enter", { method: "POST", body: token });
  if (answer.ok) {
    location.replace("/");
  } else {
    const command = document.createElement("code");
    command.textContent = "agentctl ui";
    const reason = (await answer.text()).trim();
    status.replaceChildren(
      `${reason} For another link press Enter where `,
      command,
      " runs, or start it again.",
    );
  }
}
